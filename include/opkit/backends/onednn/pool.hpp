// MaxPool, AveragePool and GlobalAveragePool for the "onednn" backend, of images in blocks of
// channels.
#ifndef OPKIT_BACKENDS_ONEDNN_POOL_HPP_
#define OPKIT_BACKENDS_ONEDNN_POOL_HPP_

#include "opkit/backends/onednn/blocks.hpp"
#include "opkit/backends/onednn/primitive.hpp"
#include "opkit/ops/nn/pool.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The windows of a pool in the terms of oneDNN.
struct OnednnWindows {
  dnnl::memory::dims kernel, strides, dilations, begin, end;

  // Throws UnsupportedOperatorFeature for windows that oneDNN does not support.
  explicit OnednnWindows(const WindowAxes& axes) {
    for (const WindowAxis& axis : axes) {
      kernel.push_back(axis.kernel);
      strides.push_back(axis.stride);
      dilations.push_back(axis.dilation - 1);
      begin.push_back(axis.pad_begin);
      // With ceil_mode the last window may reach past the pads: for oneDNN that is a larger pad.
      end.push_back((axis.output - 1) * axis.stride + axis.extent() - axis.input - axis.pad_begin);
      if (axis.pad_begin >= axis.extent() || end.back() >= axis.extent())
        throw UnsupportedOperatorFeature("oneDNN has no windows of pads alone");
    }
  }
};

// The base of the pools with windows.
class PoolInBlocks : public PoolOpBase {
 public:
  using PoolOpBase::PoolOpBase;

 protected:
  static WindowAxes AxesOf(const KernelQuery& query) {
    return PoolOpBase::AxesOf(WindowAttributes(query.def), query.inputs[0].shape.ToShape());
  }
  bool RunPool(dnnl::algorithm algorithm, const WindowAxes& axes) {
    const Tensor& x = Input(0);
    Tensor* y = InferredOutput(0);
    // A piece may be any blocks of channels: for oneDNN each block counts as an image, and blocks
    // are contiguous.
    const OnednnBlocks in(x.shape(), OnednnBlockOf(x.layout()));
    const OnednnBlocks out(y->shape(), in.block);
    primitive_.Run(*this, inference().version(), {x.raw_data(), y->raw_data()}, [&](int threads) {
      const OnednnWindows windows(axes);
      double taps = 1;
      for (const WindowAxis& axis : axes) taps *= static_cast<double>(axis.kernel);
      const int64_t parts =
          OnednnPieces(taps * static_cast<double>(out.floats()), threads, in.planes());
      std::vector<OnednnPiece> pieces;
      for (int64_t i = 0; i < parts; ++i) {
        const int64_t first = in.planes() * i / parts;
        dnnl::memory::dims from = OnednnDims(x.shape()), to = OnednnDims(y->shape());
        from[0] = to[0] = in.planes() * (i + 1) / parts - first;
        from[1] = to[1] = in.block;
        const dnnl::pooling_forward::primitive_desc kernel(
            OnednnEngine(), dnnl::prop_kind::forward_inference, algorithm,
            BlockedDesc(from, in.block), BlockedDesc(to, in.block), windows.strides, windows.kernel,
            windows.dilations, windows.begin, windows.end, OnednnAttributes());
        pieces.push_back({dnnl::pooling_forward(kernel),
                          {{DNNL_ARG_SRC, kernel.src_desc(), first * in.plane()},
                           {DNNL_ARG_DST, kernel.dst_desc(), first * out.plane()}},
                          kernel.scratchpad_desc()});
      }
      return pieces;
    });
    return true;
  }

 private:
  OnednnPrimitive primitive_;
};

}  // namespace detail

// MaxPool by a loop of its own, because oneDNN's MaxPool loses a NaN.
class MaxPoolOnednnOp final : public detail::PoolInBlocks {
 public:
  using PoolInBlocks::PoolInBlocks;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query, 1);
    const int64_t block = detail::RequireOnednnBlocks(query);
    if (query.outputs.size() > 1)
      throw UnsupportedOperatorFeature("it does not tell where the largest elements were");
    detail::OnednnWindows{AxesOf(query)};
    return {detail::OnednnBlocksConfig(query, block, false)};
  }
  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const int64_t block = detail::RequireOnednnBlocks(*this, Input(0).layout());
    return block == 8 ? Run<8>() : Run<16>();
  }

 private:
  template <int kBlock>
  bool Run() {
    // Compilers do not vectorize the selection below by themselves.
    using Lanes = float __attribute__((vector_size(32)));
    constexpr int kLanes = 8;
    const Tensor& image = Input(0);
    const auto* x = static_cast<const float*>(image.raw_data());
    auto* y = static_cast<float*>(InferredOutput(0)->raw_mutable_data());
    const int64_t planes = detail::OnednnBlocks(image.shape(), kBlock).planes();
    ForEachWindow(PoolOpBase::AxesOf(attributes_, image.shape()),
                  [&](const std::vector<WindowTap>& taps, int64_t input_pixels, int64_t pixel,
                      int64_t output_pixels) {
                    for (int64_t i = 0; i < planes * (kBlock / kLanes); ++i) {
                      const int64_t plane = i / (kBlock / kLanes);
                      const int64_t lane = i % (kBlock / kLanes) * kLanes;
                      const float* from = x + plane * input_pixels * kBlock + lane;
                      Lanes largest = Lanes{} + detail::LeastValue<float>();
                      for (const WindowTap& tap : taps) {
                        Lanes in;
                        std::memcpy(&in, from + tap.input * kBlock, sizeof in);
                        largest = ((in > largest) | (in != in)) ? in : largest;
                      }
                      std::memcpy(y + (plane * output_pixels + pixel) * kBlock + lane, &largest,
                                  sizeof largest);
                    }
                  });
    return true;
  }
};

class AveragePoolOnednnOp final : public detail::PoolInBlocks {
 public:
  using PoolInBlocks::PoolInBlocks;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query, 1);
    const int64_t block = detail::RequireOnednnBlocks(query);
    const WindowAxes axes = AxesOf(query);
    detail::OnednnWindows{axes};
    for (const WindowAxis& axis : axes)
      if (axis.dilation > 1 && axis.dilation > axis.input)
        throw UnsupportedOperatorFeature("oneDNN has no dilation beyond the image");
    for (const WindowAxis& axis : axes)
      if (CountsPads(query.def) && (axis.output - 1) * axis.stride + axis.extent() >
                                       axis.input + axis.pad_begin + axis.pad_end)
        throw UnsupportedOperatorFeature(
            "oneDNN counts the elements that ceil_mode adds to a window as pads");
    return {detail::OnednnBlocksConfig(query, block, false)};
  }
  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    detail::RequireOnednnBlocks(*this, Input(0).layout());
    return RunPool(CountsPads(def()) ? dnnl::algorithm::pooling_avg_include_padding
                                     : dnnl::algorithm::pooling_avg_exclude_padding,
                   PoolOpBase::AxesOf(attributes_, Input(0).shape()));
  }

 private:
  static bool CountsPads(const OperatorDef& def) {
    return def.args().Get<int64_t>("count_include_pad", 0) != 0;
  }
};

// Sums blocks of pixels in float and the sums of blocks in double, so that large images lose no
// precision.
class GlobalAveragePoolOnednnOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query);
    return {detail::OnednnBlocksConfig(query, detail::RequireOnednnBlocks(query), false)};
  }
  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const Tensor& x = Input(0);
    const detail::OnednnBlocks blocks(x.shape(), detail::RequireOnednnBlocks(*this, x.layout()));
    const auto* in = static_cast<const float*>(x.raw_data());
    auto* y = static_cast<float*>(InferredOutput(0)->raw_mutable_data());
    constexpr int64_t kGrainFloats = 8192;
    ParallelForRange(
        blocks.planes(), kGrainFloats / blocks.plane() + 1, [&](int64_t begin, int64_t end) {
          for (int64_t plane = begin; plane < end; ++plane)
            blocks.block == 8
                ? Average<8>(in + plane * blocks.plane(), blocks.pixels, y + plane * 8)
                : Average<16>(in + plane * blocks.plane(), blocks.pixels, y + plane * 16);
        });
    return true;
  }

 private:
  template <int kBlock>
  static void Average(const float* x, int64_t pixels, float* y) {
    constexpr int64_t kRun = 64;  // pixels
    double total[kBlock] = {};
    for (int64_t first = 0; first < pixels; first += kRun) {
      float sum[kBlock] = {};
      const int64_t last = (std::min)(first + kRun, pixels);
      for (int64_t p = first; p < last; ++p)
        for (int k = 0; k < kBlock; ++k) sum[k] += x[p * kBlock + k];
      for (int k = 0; k < kBlock; ++k) total[k] += static_cast<double>(sum[k]);
    }
    for (int k = 0; k < kBlock; ++k)
      y[k] = static_cast<float>(total[k] / static_cast<double>(pixels));
  }
};

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(MaxPool, onednn, MaxPoolOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(AveragePool, onednn, AveragePoolOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(GlobalAveragePool, onednn, GlobalAveragePoolOnednnOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_POOL_HPP_

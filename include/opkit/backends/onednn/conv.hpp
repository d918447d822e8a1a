// Conv of float32 for the "onednn" backend: in blocks of channels where the weights are constant,
// and in the standard layout where that is a product of matrices.
#ifndef OPKIT_BACKENDS_ONEDNN_CONV_HPP_
#define OPKIT_BACKENDS_ONEDNN_CONV_HPP_

#include "opkit/backends/onednn/primitive.hpp"
#include "opkit/ops/nn/conv.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A convolution of known shapes, as oneDNN describes it.
class OnednnConv {
 public:
  using Dims = dnnl::memory::dims;
  using Desc = dnnl::memory::desc;
  using Kernel = dnnl::convolution_forward::primitive_desc;

  OnednnConv(const WindowAttributes& attributes, int64_t groups, const Shape& x, const Shape& w,
             const Shape& y, bool has_bias)
      : x_(OnednnDims(x)), y_(OnednnDims(y)), groups_(groups), has_bias_(has_bias) {
    const ConvSizes sizes = ConvSizes::Of(attributes, groups, x, w);
    if (groups > 1) w_.push_back(groups);
    w_.push_back(w[0] / groups);
    for (int axis = 1; axis < w.rank(); ++axis) w_.push_back(w[axis]);
    for (const WindowAxis& axis : sizes.axes) {
      strides_.push_back(axis.stride);
      dilations_.push_back(axis.dilation - 1);
      begin_.push_back(axis.pad_begin);
      end_.push_back(axis.pad_end);
    }
    // A column of pixels is a line of them in memory, and lines are what oneDNN's kernels are
    // fast at.
    if (x.rank() == 4 && x[3] == 1 && y[3] == 1 && w[3] == 1 && begin_[1] == 0 && end_[1] == 0) {
      for (Dims* dims : {&x_, &y_, &w_}) std::swap(dims->back(), (*dims)[dims->size() - 2]);
      for (Dims* dims : {&strides_, &dilations_, &begin_, &end_}) std::swap((*dims)[0], (*dims)[1]);
    }
    flops_ = 2.0 * static_cast<double>(y.numel()) * static_cast<double>(sizes.channels) *
             static_cast<double>(sizes.kernel);
    is_pointwise_ = groups == 1 && sizes.kernel == 1 && sizes.input_pixels == sizes.output_pixels;
  }

  // Its pieces for so many threads: of a batch, or of the output's channels (those of a depthwise
  // one with their input), which lie behind each other in blocks. One piece where oneDNN would
  // order the weights of a piece otherwise than those of the whole.
  std::vector<OnednnPiece> Cut(int threads, const Desc& w, int64_t x_block, int64_t y_block) const {
    const bool is_depthwise = groups_ > 1 && groups_ == x_[1] && groups_ == y_[1];
    std::vector<OnednnPiece> pieces;
    if (x_[0] > 1) {
      const int64_t parts = OnednnPieces(flops_, threads, x_[0]);
      for (int64_t i = 0; i < parts; ++i) {
        const int64_t first = x_[0] * i / parts;
        OnednnConv part = *this;
        part.x_[0] = part.y_[0] = x_[0] * (i + 1) / parts - first;
        pieces.push_back(part.PieceOf(w, x_block, y_block, first * Padded(x_, x_block) / x_[0], 0,
                                      0, first * Padded(y_, y_block) / y_[0]));
      }
      return pieces;
    }
    const int64_t unit = CutUnit(w, y_block);
    const bool can_cut = unit > 0 && (groups_ == 1 || (is_depthwise && x_block == y_block));
    const int64_t units = can_cut ? y_[1] / unit : 1;
    const int64_t parts = OnednnPieces(flops_, threads, units);
    for (int64_t i = 0; i < parts && parts > 1; ++i) {
      const int64_t first = units * i / parts * unit;
      const int64_t last = i + 1 < parts ? units * (i + 1) / parts * unit : y_[1];
      OnednnConv part = *this;
      part.y_[1] = last - first;
      part.w_[0] = last - first;
      if (is_depthwise) part.groups_ = part.x_[1] = last - first;
      const Kernel kernel =
          part.Make(part.ImageDesc(x_block), part.AnyWeights(), part.OutputDesc(y_block));
      if (!AreOrderedAlike(kernel.weights_desc(), w)) {
        pieces.clear();
        break;
      }
      const int64_t x_at =
          is_depthwise ? first * Padded(x_, x_block) / PaddedChannels(x_, x_block) : 0;
      const int64_t y_at = first * Padded(y_, y_block) / PaddedChannels(y_, y_block);
      const int64_t w_at = first / AxisBlock(w) * w.get_strides()[0];
      pieces.push_back(part.Piece(kernel, x_at, w_at, first, y_at));
    }
    if (pieces.empty()) pieces.push_back(PieceOf(w, x_block, y_block, 0, 0, 0, 0));
    return pieces;
  }

  // The images, their channels in blocks of this many; 0: in the standard layout.
  Desc ImageDesc(int64_t block) const { return Images(x_, block); }
  Desc OutputDesc(int64_t block) const { return Images(y_, block); }
  Desc StandardWeights() const { return RowMajorDesc(w_); }
  bool is_pointwise() const { return is_pointwise_; }
  double flops() const { return flops_; }

  // Errors: dnnl::error where oneDNN has no kernel.
  Kernel Make(const Desc& x, const Desc& w, const Desc& y) const {
    const auto kind = dnnl::prop_kind::forward_inference;
    const auto direct = dnnl::algorithm::convolution_direct;
    const dnnl::primitive_attr attributes = OnednnAttributes();
    if (!has_bias_)
      return Kernel(OnednnEngine(), kind, direct, x, w, y, strides_, dilations_, begin_, end_,
                    attributes);
    return Kernel(OnednnEngine(), kind, direct, x, w, BiasDesc(), y, strides_, dilations_, begin_,
                  end_, attributes);
  }
  Desc AnyWeights() const {
    return {w_, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
  }
  Desc BiasDesc() const { return RowMajorDesc({y_[1]}); }
  // Kernels that oneDNN compiles for the machine; the others are slower than any other backend.
  static bool IsCompiled(const Kernel& kernel) {
    const std::string name = kernel.impl_info_str();
    return name.find("ref") == std::string::npos && name.find("gemm") == std::string::npos;
  }

 private:
  OnednnPiece PieceOf(const Desc& w, int64_t x_block, int64_t y_block, int64_t x_at, int64_t w_at,
                      int64_t bias_at, int64_t y_at) const {
    return Piece(Make(ImageDesc(x_block), w, OutputDesc(y_block)), x_at, w_at, bias_at, y_at);
  }
  OnednnPiece Piece(const Kernel& kernel, int64_t x_at, int64_t w_at, int64_t bias_at,
                    int64_t y_at) const {
    OnednnPiece piece{
        dnnl::convolution_forward(kernel),
        {{DNNL_ARG_SRC, kernel.src_desc(), x_at}, {DNNL_ARG_WEIGHTS, kernel.weights_desc(), w_at}},
        kernel.scratchpad_desc()};
    if (has_bias_) piece.arguments.push_back({DNNL_ARG_BIAS, kernel.bias_desc(), bias_at});
    piece.arguments.push_back({DNNL_ARG_DST, kernel.dst_desc(), y_at});
    return piece;
  }
  // Elements of the blocks along the first axis.
  static int64_t AxisBlock(const Desc& desc) {
    const Dims blocks = desc.get_inner_blks(), axes = desc.get_inner_idxs();
    int64_t block = 1;
    for (size_t i = 0; i < blocks.size(); ++i)
      if (axes[i] == 0) block *= blocks[i];
    return block;
  }
  // Output channels that are cut off together: four blocks where there are enough of them, as
  // kernels compute up to four at once. 0: none.
  int64_t CutUnit(const Desc& w, int64_t y_block) const {
    if (y_block == 0) return 0;
    const int64_t block = (std::max)(y_block, AxisBlock(w));
    for (const int64_t unit : {4 * block, 2 * block, block})
      if (y_[1] >= 4 * unit) return unit;
    return y_[1] >= 2 * block ? block : 0;
  }
  static bool AreOrderedAlike(const Desc& a, const Desc& b) {
    return a.get_inner_blks() == b.get_inner_blks() && a.get_inner_idxs() == b.get_inner_idxs() &&
           a.get_strides() == b.get_strides();
  }
  static int64_t PaddedChannels(const Dims& extents, int64_t block) {
    return block ? (extents[1] + block - 1) / block * block : extents[1];
  }
  // Floats of images.
  static int64_t Padded(const Dims& extents, int64_t block) {
    int64_t floats = extents[0] * PaddedChannels(extents, block);
    for (size_t i = 2; i < extents.size(); ++i) floats *= extents[i];
    return floats;
  }
  static Desc Images(const Dims& extents, int64_t block) {
    return block ? BlockedDesc(extents, block) : RowMajorDesc(extents);
  }

  Dims x_, w_, y_, strides_, dilations_, begin_, end_;
  int64_t groups_;
  bool has_bias_, is_pointwise_ = false;
  double flops_ = 0;
};

// Blocks of channels to begin a chain with. With AVX-512 the kernels for blocks of 16 are no faster
// on processors that have half as wide units (Zen 4: 109 GFLOP/s with 8, 106 with 16), and lose
// by padding to 16 (24 channels: 104 against 64), so they are for wide networks alone.
inline int64_t OnednnFirstBlock(int64_t channels, int64_t outputs, bool takes_standard) {
  static const bool has_avx512 = [] {
    const auto avx512 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & avx512) == avx512;
  }();
  constexpr int64_t kWide = 32;
  return has_avx512 && outputs % kWide == 0 && (takes_standard || channels % kWide == 0) ? 16 : 8;
}

}  // namespace detail

class ConvOnednnOp final : public ConvOpBase {
 public:
  using ConvOpBase::ConvOpBase;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query, 3);
    const Shape x = query.inputs[0].shape.ToShape(), w = query.inputs[1].shape.ToShape();
    const Shape y = query.outputs[0].shape.ToShape();
    if (!detail::CanBlock(x))
      throw UnsupportedOperatorFeature(
          StrCat("it has kernels for 1 to 3 spatial axes, and X is ", ToString(x)));
    const int64_t groups = detail::ConvGroups(query.def);
    const bool has_bias = query.inputs.size() > 2 && !query.def.inputs()[2].empty();
    const detail::OnednnConv conv(WindowAttributes(query.def), groups, x, w, y, has_bias);
    const OnednnScope scope;
    std::vector<KernelConfig> configs;
    std::string why = "its weights are not constant, and would be converted in every run";
    if (query.inputs[1].constant) why = ProposeBlocked(query, conv, x, y, groups, configs);
    if (conv.is_pointwise() && query.inputs[0].layout.is_standard())
      ProposePointwise(conv, configs);
    if (configs.empty()) throw UnsupportedOperatorFeature(why);
    return configs;
  }

  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const Tensor &x = DenseInput(0), &w = DenseInput(1);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    primitive_.Run(*this, inference().version(),
                   {x.raw_data(), w.raw_data(), HasInput(2) ? DenseInput(2).raw_data() : nullptr,
                    y->raw_data()},
                   [&](int threads) {
                     if (!detail::CanBlock(x.shape()))
                       throw UnsupportedOperatorFeature("it has kernels for 1 to 3 spatial axes");
                     const detail::OnednnConv conv(attributes_, groups_, x.shape(), w.shape(),
                                                   y->shape(), HasInput(2));
                     return conv.Cut(
                         threads,
                         w.layout().is_standard() ? conv.StandardWeights()
                                                  : detail::OnednnDescriptorOf(w.layout()).desc(),
                         detail::OnednnBlockOf(x.layout()), detail::OnednnBlockOf(y->layout()));
                   });
    return true;
  }

 private:
  // In blocks of channels; says why not where it proposes nothing.
  static std::string ProposeBlocked(const KernelQuery& query, const detail::OnednnConv& conv,
                                    const Shape& x, const Shape& y, int64_t groups,
                                    std::vector<KernelConfig>& configs) {
    constexpr int64_t kFewChannels = 4;  // kernels read these from the standard layout
    const int64_t given = detail::OnednnBlockOf(query.inputs[0].layout);
    const bool takes_standard = given == 0 && groups == 1 && x[1] <= kFewChannels;
    const int64_t block = given ? given : detail::OnednnFirstBlock(x[1], y[1], takes_standard);
    if (const auto moved = static_cast<double>(x.numel() + y.numel());
        given == 0 && !takes_standard && conv.flops() < kLeastIntensity * moved)
      return StrCat("it would convert for ", static_cast<int64_t>(conv.flops() / moved),
                    " operations an element, from ", static_cast<int64_t>(kLeastIntensity),
                    " on it is faster");
    try {
      const auto kernel = conv.Make(conv.ImageDesc(takes_standard ? 0 : block), conv.AnyWeights(),
                                    conv.OutputDesc(block));
      if (!detail::OnednnConv::IsCompiled(kernel))
        return StrCat("oneDNN has only '", kernel.impl_info_str(), "' for it");
      KernelConfig& config = configs.emplace_back();
      config.input_layouts.resize(query.inputs.size());
      if (!takes_standard) config.input_layouts[0] = detail::OnednnBlocked(x, block);
      config.input_layouts[1] = detail::OnednnLayout(kernel.weights_desc(), conv.StandardWeights());
      config.output_layouts = {detail::OnednnBlocked(y, block)};
      return {};
    } catch (const dnnl::error& error) {
      return StrCat("oneDNN has no kernel for it: ", error.what());
    }
  }
  static void ProposePointwise(const detail::OnednnConv& conv, std::vector<KernelConfig>& configs) {
    if (conv.flops() < kLeastFlops) return;
    try {
      const auto kernel = conv.Make(conv.ImageDesc(0), conv.StandardWeights(), conv.OutputDesc(0));
      if (std::string_view(kernel.impl_info_str()).find("ref") != std::string_view::npos) return;
      configs.emplace_back();
    } catch (const dnnl::error&) {  // then there is no second configuration
    }
  }

  // Below, a conversion of a lone convolution takes longer than what its kernel saves.
  static constexpr double kLeastIntensity = 100;
  // Below, a call of oneDNN takes longer than what a product of matrices saves.
  static constexpr double kLeastFlops = 1e5;

  detail::OnednnPrimitive primitive_;
};

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Conv, onednn, ConvOnednnOp);

}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_CONV_HPP_

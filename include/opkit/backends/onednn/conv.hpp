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

  // Of images whose channels come in blocks; 0: in the standard layout.
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
  OnednnParts Parts(const Kernel& kernel) const {
    OnednnParts parts{dnnl::convolution_forward(kernel),
                      {{DNNL_ARG_SRC, kernel.src_desc()}, {DNNL_ARG_WEIGHTS, kernel.weights_desc()}},
                      kernel.scratchpad_desc()};
    if (has_bias_) parts.arguments.emplace_back(DNNL_ARG_BIAS, kernel.bias_desc());
    parts.arguments.emplace_back(DNNL_ARG_DST, kernel.dst_desc());
    return parts;
  }
  // Kernels that oneDNN compiles for the machine; the others are slower than any other backend.
  static bool IsCompiled(const Kernel& kernel) {
    const std::string name = kernel.impl_info_str();
    return name.find("ref") == std::string::npos && name.find("gemm") == std::string::npos;
  }

 private:
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
      throw UnsupportedOperatorFeature(StrCat("it has kernels for 1 to 3 spatial axes, and X is ",
                                              ToString(x)));
    const int64_t groups = detail::ConvGroups(query.def);
    const bool has_bias = query.inputs.size() > 2 && !query.def.inputs()[2].empty();
    const detail::OnednnConv conv(WindowAttributes(query.def), groups, x, w, y, has_bias);
    const OnednnCall call;
    std::vector<KernelConfig> configs;
    std::string why = "its weights are not constant, and would be converted in every run";
    if (query.inputs[1].constant) why = ProposeBlocked(query, conv, x, y, groups, configs);
    if (conv.is_pointwise() && query.inputs[0].layout.is_standard())
      ProposePointwise(query, conv, configs);
    if (configs.empty()) throw UnsupportedOperatorFeature(why);
    return configs;
  }

  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const Tensor &x = DenseInput(0), &w = DenseInput(1);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    if (planned_for_ != inference().version()) [[unlikely]] {
      primitive_.Clear();
      planned_for_ = inference().version();
    }
    primitive_.Run(
        *this,
        {x.raw_data(), w.raw_data(), HasInput(2) ? DenseInput(2).raw_data() : nullptr,
         y->raw_data()},
        [&] {
          if (!detail::CanBlock(x.shape()))
            throw UnsupportedOperatorFeature("it has kernels for 1 to 3 spatial axes");
          const detail::OnednnConv conv(attributes_, groups_, x.shape(), w.shape(), y->shape(),
                                        HasInput(2));
          return conv.Parts(conv.Make(conv.ImageDesc(detail::OnednnBlockOf(x.layout())),
                                      w.layout().is_standard()
                                          ? conv.StandardWeights()
                                          : detail::OnednnDescriptorOf(w.layout()).desc(),
                                      conv.OutputDesc(detail::OnednnBlockOf(y->layout()))));
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
    const int64_t block =
        given ? given : detail::OnednnFirstBlock(x[1], y[1], takes_standard);
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
      config.input_layouts[1] =
          detail::OnednnLayout(kernel.weights_desc(), conv.StandardWeights());
      config.output_layouts = {detail::OnednnBlocked(y, block)};
      config.scratch_bytes = static_cast<int64_t>(kernel.scratchpad_desc().get_size());
      return {};
    } catch (const dnnl::error& error) {
      return StrCat("oneDNN has no kernel for it: ", error.what());
    }
  }
  static void ProposePointwise(const KernelQuery& query, const detail::OnednnConv& conv,
                               std::vector<KernelConfig>& configs) {
    if (conv.flops() < kLeastFlops) return;
    try {
      const auto kernel =
          conv.Make(conv.ImageDesc(0), conv.StandardWeights(), conv.OutputDesc(0));
      if (std::string_view(kernel.impl_info_str()).find("ref") != std::string_view::npos) return;
      KernelConfig& config = configs.emplace_back();
      config.scratch_bytes = static_cast<int64_t>(kernel.scratchpad_desc().get_size());
    } catch (const dnnl::error&) {  // then there is no second configuration
    }
    static_cast<void>(query);
  }

  // Below, a conversion of a lone convolution takes longer than what its kernel saves.
  static constexpr double kLeastIntensity = 100;
  // Below, a call of oneDNN takes longer than what a product of matrices saves.
  static constexpr double kLeastFlops = 1e5;

  detail::OnednnPrimitive primitive_;
  uint64_t planned_for_ = 0;
};

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Conv, onednn, ConvOnednnOp);

}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_CONV_HPP_

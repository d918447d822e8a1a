// ConvTranspose of float32 for the "onednn" backend, for constant weights and images in blocks of
// channels.
#ifndef OPKIT_BACKENDS_ONEDNN_CONV_TRANSPOSE_HPP_
#define OPKIT_BACKENDS_ONEDNN_CONV_TRANSPOSE_HPP_

#include "opkit/backends/onednn/blocks.hpp"
#include "opkit/backends/onednn/conv.hpp"
#include "opkit/ops/nn/conv_transpose.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// A transposed convolution of known shapes, in the terms of oneDNN: X is the source, and weights
// have the output channels first.
class OnednnConvTranspose {
 public:
  using Dims = dnnl::memory::dims;
  using Desc = dnnl::memory::desc;
  using Kernel = dnnl::deconvolution_forward::primitive_desc;

  OnednnConvTranspose(const ConvTransposeAttributes& attributes, int64_t groups, const Shape& x,
                      const Shape& w, const Shape& y, bool has_bias)
      : x_(OnednnDims(x)), y_(OnednnDims(y)), groups_(groups), has_bias_(has_bias) {
    const ConvSizes sizes = ConvTransposeSizes(attributes, groups, x, w);
    Dims order;  // the strides of W's elements
    const int64_t inputs = x[1] / groups, outputs = w[1];
    if (groups > 1) {
      w_.push_back(groups);
      order.push_back(inputs * outputs * sizes.kernel);
    }
    w_.insert(w_.end(), {outputs, inputs});
    order.insert(order.end(), {sizes.kernel, outputs * sizes.kernel});
    int64_t stride = sizes.kernel;
    for (const WindowAxis& axis : sizes.axes) {
      w_.push_back(axis.kernel);
      order.push_back(stride /= axis.kernel);
      strides_.push_back(axis.stride);
      dilations_.push_back(axis.dilation - 1);
      begin_.push_back(axis.pad_begin);
      // output_padding is a smaller pad at the end.
      end_.push_back((axis.output - 1) * axis.stride + axis.extent() - axis.input - axis.pad_begin);
    }
    standard_ = Desc(w_, dnnl::memory::data_type::f32, order);
    flops_ = 2.0 * static_cast<double>(x.numel()) * static_cast<double>(outputs) *
             static_cast<double>(sizes.kernel);
  }

  const Desc& StandardWeights() const { return standard_; }
  Desc AnyWeights() const {
    return {w_, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
  }
  // Returns the estimated nanoseconds of a run with X and Y in these blocks of channels.
  double EstimatedNs(int64_t x_block, int64_t y_block) const {
    return OnednnConvNs(flops_, groups_, {x_, x_block}, {y_, y_block});
  }
  // Returns oneDNN's kernel. Throws dnnl::error if oneDNN has none.
  Kernel Make(int64_t x_block, const Desc& w, int64_t y_block) const {
    const auto kind = dnnl::prop_kind::forward_inference;
    const auto direct = dnnl::algorithm::deconvolution_direct;
    const Desc x = BlockedDesc(x_, x_block), y = BlockedDesc(y_, y_block);
    const dnnl::primitive_attr attributes = OnednnAttributes();
    if (!has_bias_)
      return Kernel(OnednnEngine(), kind, direct, x, w, y, strides_, dilations_, begin_, end_,
                    attributes);
    return Kernel(OnednnEngine(), kind, direct, x, w, RowMajorDesc({y_[1]}), y, strides_,
                  dilations_, begin_, end_, attributes);
  }
  // Cuts the batch into pieces of whole images for `threads` threads.
  std::vector<OnednnPiece> Cut(int threads, int64_t block, const Desc& w) const {
    const int64_t parts = OnednnPieces(flops_, threads, x_[0]);
    std::vector<OnednnPiece> pieces;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t first = x_[0] * i / parts;
      OnednnConvTranspose part = *this;
      part.x_[0] = part.y_[0] = x_[0] * (i + 1) / parts - first;
      const Kernel kernel = part.Make(block, w, block);
      OnednnPiece& piece = pieces.emplace_back();
      piece.primitive = dnnl::deconvolution_forward(kernel);
      piece.arguments = {
          {DNNL_ARG_SRC, kernel.src_desc(), first * OnednnElements(x_, block) / x_[0]},
          {DNNL_ARG_WEIGHTS, kernel.weights_desc()}};
      if (has_bias_) piece.arguments.push_back({DNNL_ARG_BIAS, kernel.bias_desc()});
      piece.arguments.push_back(
          {DNNL_ARG_DST, kernel.dst_desc(), first * OnednnElements(y_, block) / y_[0]});
      piece.scratchpad = kernel.scratchpad_desc();
    }
    return pieces;
  }

 private:
  Dims x_, y_, w_, strides_, dilations_, begin_, end_;
  Desc standard_;
  int64_t groups_;
  bool has_bias_;
  double flops_ = 0;
};

}  // namespace detail

class ConvTransposeOnednnOp final : public ConvTransposeOpBase {
 public:
  using ConvTransposeOpBase::ConvTransposeOpBase;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query, 3);
    const int64_t given = detail::RequireOnednnBlocks(query);
    if (!query.inputs[1].constant)
      throw UnsupportedOperatorFeature(
          "its weights are not constant, and would be converted in every run");
    const Shape x = query.inputs[0].shape.ToShape(), y = query.outputs[0].shape.ToShape();
    const detail::OnednnConvTranspose conv(
        ConvTransposeAttributes(query.def), detail::ConvGroups(query.def), x,
        query.inputs[1].shape.ToShape(), y,
        query.inputs.size() > 2 && !query.def.inputs()[2].empty());
    const OnednnScope scope;
    std::vector<KernelConfig> configs;
    const std::string why = detail::ProposeOnednnBlocks(query, conv, given, given, configs);
    const int64_t other = given == 8 ? 16 : 8;
    detail::ProposeOnednnBlocks(query, conv, other, other, configs);
    if (configs.empty()) throw UnsupportedOperatorFeature(why);
    return configs;
  }

  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const Tensor& x = Input(0);
    const int64_t block = detail::RequireOnednnBlocks(*this, x.layout());
    const Tensor& w = Input(1);
    Tensor* y = InferredOutput(0);
    primitive_.Run(*this, inference().version(),
                   {x.raw_data(), w.raw_data(), HasInput(2) ? DenseInput(2).raw_data() : nullptr,
                    y->raw_data()},
                   [&](int threads) {
                     const detail::OnednnConvTranspose conv(attributes_, groups_, x.shape(),
                                                            w.shape(), y->shape(), HasInput(2));
                     return conv.Cut(threads, block,
                                     w.layout().is_standard()
                                         ? conv.StandardWeights()
                                         : detail::OnednnDescriptorOf(w.layout()).desc());
                   });
    return true;
  }

 private:
  detail::OnednnPrimitive primitive_;
};

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(ConvTranspose, onednn, ConvTransposeOnednnOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_CONV_TRANSPOSE_HPP_

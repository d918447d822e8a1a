// Conv of float32 and bfloat16 for the "onednn" backend: in blocks of channels if the weights are
// constant; in the standard layout if the convolution is a matrix product or of bfloat16. In plans
// it takes in the elementwise nodes that follow (FusedConv).
#ifndef OPKIT_BACKENDS_ONEDNN_CONV_HPP_
#define OPKIT_BACKENDS_ONEDNN_CONV_HPP_

#include "opkit/backends/onednn/blocks.hpp"
#include "opkit/backends/onednn/epilogue.hpp"
#include "opkit/ops/nn/conv.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the number of elements of images whose channels are stored in blocks of `block` channels.
// Counts the padding channels of the last block. A `block` of 0 is the standard layout.
inline int64_t OnednnElements(const dnnl::memory::dims& extents, int64_t block) {
  int64_t elements = extents[0] * (block ? (extents[1] + block - 1) / block * block : extents[1]);
  for (size_t i = 2; i < extents.size(); ++i) elements *= extents[i];
  return elements;
}
// The images that a convolution reads or writes.
struct OnednnImages {
  const dnnl::memory::dims& extents;
  int64_t block;  // 0: in the standard layout

  double elements() const { return static_cast<double>(OnednnElements(extents, block)); }
  double pads() const { return elements() / static_cast<double>(OnednnElements(extents, 0)); }
};
// Returns the estimated nanoseconds of a convolution of float32 with `flops` operations on one
// thread. Kernels compute the pads, too. Measured on a Zen 5: 14 GFLOP/s for each float of a
// vector, and 40 GB/s of its caches.
inline double OnednnConvNs(double flops, int64_t groups, OnednnImages x, OnednnImages y) {
  constexpr double kFlopsPerNs = 14, kNsPerFloat = 0.1;
  const auto lanes = static_cast<double>((std::min)(y.block, OnednnLanes()));
  const double computed = flops * (groups > 1 ? 1 : x.pads()) * y.pads();
  return computed / (kFlopsPerNs * lanes) + kNsPerFloat * (x.elements() + y.elements());
}

// A convolution as its node and its tensors describe it.
struct OnednnConvNode {
  const WindowAttributes& attributes;
  int64_t groups;
  const Shape &x, &w, &y;
  bool has_bias;
  OnednnType type;
  OnednnEpilogue epilogue = {};
  std::vector<OnednnOperand> operands = {};  // the epilogue's inputs
};

// A convolution of known shapes, in the terms of oneDNN. Makes its primitives.
class OnednnConv {
 public:
  using Dims = dnnl::memory::dims;
  using Desc = dnnl::memory::desc;
  using Kernel = dnnl::convolution_forward::primitive_desc;

  explicit OnednnConv(const OnednnConvNode& node)
      : x_(OnednnDims(node.x)),
        y_(OnednnDims(node.y)),
        type_(node.type),
        groups_(node.groups),
        has_bias_(node.has_bias),
        epilogue_(node.epilogue),
        operands_(node.operands) {
    const Shape &x = node.x, &w = node.w, &y = node.y;
    const int64_t groups = groups_;
    const ConvSizes sizes = ConvSizes::Of(node.attributes, groups, x, w);
    if (groups > 1) w_.push_back(groups);
    w_.push_back(w[0] / groups);
    for (int axis = 1; axis < w.rank(); ++axis) w_.push_back(w[axis]);
    for (const WindowAxis& axis : sizes.axes) {
      strides_.push_back(axis.stride);
      dilations_.push_back(axis.dilation - 1);
      begin_.push_back(axis.pad_begin);
      end_.push_back(axis.pad_end);
    }
    // Images of one column: swap rows and columns, because oneDNN's kernels are fast for long
    // lines. The order in memory is the same.
    if (x.rank() == 4 && x[3] == 1 && y[3] == 1 && w[3] == 1 && begin_[1] == 0 && end_[1] == 0) {
      for (Dims* dims : {&x_, &y_, &w_}) std::swap(dims->back(), (*dims)[dims->size() - 2]);
      for (Dims* dims : {&strides_, &dilations_, &begin_, &end_}) std::swap((*dims)[0], (*dims)[1]);
    }
    flops_ = 2.0 * static_cast<double>(y.numel()) * static_cast<double>(sizes.channels) *
             static_cast<double>(sizes.kernel);
    is_pointwise_ = groups == 1 && sizes.kernel == 1 && sizes.input_pixels == sizes.output_pixels;
  }

  // Cuts the convolution into pieces for `threads` threads. A batch is cut into images; one image
  // is cut into groups of output channels, which are contiguous in blocks (for a depthwise
  // convolution, together with their input channels). Returns one piece if oneDNN would order the
  // weights of a piece in another way than the weights of the whole.
  std::vector<OnednnPiece> Cut(int threads, const Desc& w, int64_t x_block, int64_t y_block) const {
    const bool is_depthwise = groups_ > 1 && groups_ == x_[1] && groups_ == y_[1];
    std::vector<OnednnPiece> pieces;
    if (x_[0] > 1) {
      const int64_t parts = OnednnPieces(flops_, threads, x_[0]);
      for (int64_t i = 0; i < parts; ++i) {
        const int64_t first = x_[0] * i / parts;
        OnednnConv part = *this;
        part.x_[0] = part.y_[0] = x_[0] * (i + 1) / parts - first;
        pieces.push_back(part.PieceOf(w, x_block, y_block,
                                      {.x = first * OnednnElements(x_, x_block) / x_[0],
                                       .y = first * OnednnElements(y_, y_block) / y_[0]}));
      }
      return pieces;
    }
    const int64_t unit = CutUnit(w, y_block);
    const bool can_cut = unit > 0 && (groups_ == 1 || (is_depthwise && x_block == y_block));
    const int64_t units = can_cut ? (y_[1] + unit - 1) / unit : 1;
    const int64_t parts = OnednnPieces(flops_, threads, units);
    for (int64_t i = 0; i < parts && parts > 1; ++i) {
      const int64_t first = units * i / parts * unit;
      const int64_t last = i + 1 < parts ? units * (i + 1) / parts * unit : y_[1];
      OnednnConv part = *this;
      part.y_[1] = last - first;
      part.w_[0] = last - first;
      if (is_depthwise) part.groups_ = part.x_[1] = last - first;
      const Kernel kernel = part.Make(x_block, part.AnyWeights(), y_block);
      if (!AreOrderedAlike(kernel.weights_desc(), w)) {
        pieces.clear();
        break;
      }
      pieces.push_back(part.Piece(
          kernel,
          {.x =
               is_depthwise ? first * OnednnElements(x_, x_block) / PaddedChannels(x_, x_block) : 0,
           .w = first / AxisBlock(w) * w.get_strides()[0],
           .bias = first,
           .y = first * OnednnElements(y_, y_block) / PaddedChannels(y_, y_block)}));
    }
    if (pieces.empty()) pieces.push_back(PieceOf(w, x_block, y_block, {}));
    return pieces;
  }

  Desc StandardWeights() const { return RowMajorDesc(w_, type_); }
  bool is_pointwise() const { return is_pointwise_; }
  OnednnType type() const { return type_; }
  int64_t groups() const { return groups_; }
  double flops() const { return flops_; }
  // Returns the estimated nanoseconds of a run; -1 for bfloat16, which has only one size.
  double EstimatedNs(int64_t x_block, int64_t y_block) const {
    return type_ == OnednnType::f32 ? OnednnConvNs(flops_, groups_, {x_, x_block}, {y_, y_block})
                                    : -1;
  }

  // Returns oneDNN's kernel for weights of this format and for X and Y in blocks of so many
  // channels; 0 is the standard layout. Throws dnnl::error if oneDNN has no kernel.
  Kernel Make(int64_t x_block, const Desc& w, int64_t y_block) const {
    const auto kind = dnnl::prop_kind::forward_inference;
    const auto direct = dnnl::algorithm::convolution_direct;
    const Desc x = Images(x_, x_block), y = Images(y_, y_block);
    const dnnl::primitive_attr attributes = epilogue_.Attributes(OperandDescs(y));
    if (!has_bias_)
      return Kernel(OnednnEngine(), kind, direct, x, w, y, strides_, dilations_, begin_, end_,
                    attributes);
    return Kernel(OnednnEngine(), kind, direct, x, w, BiasDesc(), y, strides_, dilations_, begin_,
                  end_, attributes);
  }
  Desc AnyWeights() const { return {w_, type_, dnnl::memory::format_tag::any}; }
  Desc BiasDesc() const { return RowMajorDesc({y_[1]}, type_); }

 private:
  // The first elements of a piece in each tensor.
  struct Begin {
    int64_t x = 0, w = 0, bias = 0, y = 0;
  };
  OnednnPiece PieceOf(const Desc& w, int64_t x_block, int64_t y_block, const Begin& at) const {
    return Piece(Make(x_block, w, y_block), at);
  }
  OnednnPiece Piece(const Kernel& kernel, const Begin& at) const {
    OnednnPiece piece{
        dnnl::convolution_forward(kernel),
        {{DNNL_ARG_SRC, kernel.src_desc(), at.x}, {DNNL_ARG_WEIGHTS, kernel.weights_desc(), at.w}},
        kernel.scratchpad_desc()};
    if (has_bias_) piece.arguments.push_back({DNNL_ARG_BIAS, kernel.bias_desc(), at.bias});
    piece.arguments.push_back({DNNL_ARG_DST, kernel.dst_desc(), at.y});
    std::vector<int64_t> begins;
    for (const OnednnOperand operand : operands_)
      begins.push_back(operand == OnednnOperand::kWhole      ? at.y
                       : operand == OnednnOperand::kChannels ? at.bias
                                                             : 0);
    epilogue_.AddArguments(OperandDescs(kernel.dst_desc()), begins, piece);
    return piece;
  }
  // Returns the descriptors of the epilogue's operands for an output with descriptor `y`.
  std::vector<Desc> OperandDescs(const Desc& y) const {
    std::vector<Desc> descs;
    for (const OnednnOperand operand : operands_) {
      Dims extents(y_.size(), 1);
      if (operand == OnednnOperand::kChannels) extents[1] = y_[1];
      descs.push_back(operand == OnednnOperand::kWhole ? y : RowMajorDesc(extents, type_));
    }
    return descs;
  }
  // Returns the number of elements of a block along the first axis.
  static int64_t AxisBlock(const Desc& desc) {
    const Dims blocks = desc.get_inner_blks(), axes = desc.get_inner_idxs();
    int64_t block = 1;
    for (size_t i = 0; i < blocks.size(); ++i)
      if (axes[i] == 0) block *= blocks[i];
    return block;
  }
  // Returns the number of output channels to keep together in a cut: four blocks if there are
  // enough, because kernels compute up to four blocks at once. 0: the convolution cannot be cut.
  int64_t CutUnit(const Desc& w, int64_t y_block) const {
    if (y_block == 0) return 0;
    const int64_t block = (std::max)(y_block, AxisBlock(w));
    for (const int64_t unit : {4 * block, 2 * block, block})
      if (y_[1] >= 4 * unit) return unit;
    return y_[1] > block ? block : 0;
  }
  static bool AreOrderedAlike(const Desc& a, const Desc& b) {
    return a.get_inner_blks() == b.get_inner_blks() && a.get_inner_idxs() == b.get_inner_idxs() &&
           a.get_strides() == b.get_strides();
  }
  static int64_t PaddedChannels(const Dims& extents, int64_t block) {
    return block ? (extents[1] + block - 1) / block * block : extents[1];
  }
  Desc Images(const Dims& extents, int64_t block) const {
    return block ? BlockedDesc(extents, block, type_) : RowMajorDesc(extents, type_);
  }

  Dims x_, w_, y_, strides_, dilations_, begin_, end_;
  OnednnType type_;
  int64_t groups_;
  bool has_bias_, is_pointwise_ = false;
  double flops_ = 0;
  OnednnEpilogue epilogue_;
  std::vector<OnednnOperand> operands_;  // how each operand of the epilogue is broadcast
};

// Proposes a convolution with X and Y in blocks of channels; 0 is the standard layout. `Conv` is
// OnednnConv or OnednnConvTranspose. Returns the reason if oneDNN has no compiled kernel.
template <class Conv>
std::string ProposeOnednnBlocks(const KernelQuery& query, const Conv& conv, int64_t x_block,
                                int64_t y_block, std::vector<KernelConfig>& configs) {
  const auto images = [](const TensorInfo& info, int64_t block) {
    return block ? OnednnBlocked(info.shape.ToShape(), block, OnednnTypeOf(info.dtype)) : Layout();
  };
  try {
    const auto kernel = conv.Make(x_block, conv.AnyWeights(), y_block);
    if (!IsOnednnCompiled(kernel))
      return StrCat("oneDNN has only '", kernel.impl_info_str(), "' for it");
    KernelConfig& config = configs.emplace_back();
    config.input_layouts.resize(query.inputs.size());
    config.input_layouts[0] = images(query.inputs[0], x_block);
    config.input_layouts[1] = OnednnLayout(kernel.weights_desc(), conv.StandardWeights());
    config.output_layouts = {images(query.outputs[0], y_block)};
    config.cost_ns = conv.EstimatedNs(x_block, y_block);
    return {};
  } catch (const dnnl::error& error) {
    return StrCat("oneDNN has no kernel for it: ", error.what());
  }
}

}  // namespace detail

// The kernel of Conv and of FusedConv. Plans make a FusedConv from a Conv and the nodes that follow
// it.
class ConvOnednnOp final : public ConvOpBase {
 public:
  using ConvOpBase::ConvOpBase;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    if (query.def.type() == kFused)
      throw UnsupportedOperatorFeature("only plans make it, of a Conv that was selected");
    const DType dtype = query.inputs[0].dtype;
    const detail::OnednnType type = detail::RequireOnednnType(dtype);
    RequireOnednnTensors(query, 3, dtype);
    const Shape x = query.inputs[0].shape.ToShape(), w = query.inputs[1].shape.ToShape();
    const Shape y = query.outputs[0].shape.ToShape();
    if (!detail::CanBlock(x))
      throw UnsupportedOperatorFeature(
          StrCat("it has kernels for 1 to 3 spatial axes, and X is ", ToString(x)));
    const int64_t groups = detail::ConvGroups(query.def);
    const bool has_bias = query.inputs.size() > 2 && !query.def.inputs()[2].empty();
    const detail::OnednnConv conv({WindowAttributes(query.def), groups, x, w, y, has_bias, type});
    const OnednnScope scope;
    std::vector<KernelConfig> configs;
    const bool is_narrow = type == detail::OnednnType::bf16;
    // The kernel reads images with at most kFewChannels channels in the standard layout.
    constexpr int64_t kFewChannels = 4;
    const int64_t given = detail::OnednnBlockOf(query.inputs[0].layout);
    const bool takes_standard = given == 0 && groups == 1 && x[1] <= kFewChannels;
    std::string why = WhyNotBlocked(query, conv, takes_standard);
    const bool can_block = why.empty();
    // Propose both sizes of blocks and let the estimates decide. First comes the size of X's
    // blocks, else 8, because saved selections contain a configuration's number. oneDNN's kernels
    // for bfloat16 need blocks of 16: for groups, oneDNN has no other kernels.
    const int64_t first = is_narrow ? 16 : given ? given : 8;
    const auto propose = [&](int64_t block) {
      return detail::ProposeOnednnBlocks(query, conv, takes_standard ? 0 : block, block, configs);
    };
    if (can_block) why = propose(first);
    // For bfloat16 other backends have only plain loops.
    if ((conv.is_pointwise() || is_narrow) && query.inputs[0].layout.is_standard())
      ProposeStandard(query, conv, configs);
    if (can_block && !is_narrow) propose(first == 8 ? 16 : 8);
    if (configs.empty()) throw UnsupportedOperatorFeature(why);
    // For groups of 24 channels oneDNN only has kernels for blocks of 8. With AVX-512 they are half
    // as fast as Eigen's.
    const int64_t block = detail::OnednnBlockOf(configs[0].output_layout(0));
    if (groups > 1 && configs.size() == 1 && block < detail::OnednnLanes() && block != given &&
        query.def.backends() != kOnednnBackend)
      throw UnsupportedOperatorFeature(
          StrCat("it would convert for blocks of ", block, ", half of this CPU's vectors"));
    return configs;
  }

  static std::optional<FusedNode> Fuse(const FusionQuery& query) {
    int operand = -1;
    const auto step = detail::OnednnEpilogue::StepOf(query, operand);
    if (!step || !detail::OnednnEpilogue::KeepsOutput(query)) return {};
    // In the standard layout oneDNN's Sigmoid turns a NaN into 0.
    if (step->name == "Sigmoid" && query.config.output_layout(0).is_standard()) return {};
    const Shape y = query.next.outputs[0].shape.ToShape();
    std::optional<Layout> layout = Layout();
    if (operand >= 0) {
      const Shape shape = query.next.inputs[detail::Index(operand)].shape.ToShape();
      const detail::OnednnOperand spread = detail::OnednnOperandOf(shape, y);
      if (spread == detail::OnednnOperand::kOther ||
          (spread == detail::OnednnOperand::kChannels && shape[0] != 1))
        return {};
      layout = detail::OnednnEpilogue::OperandLayout(query, operand,
                                                     spread == detail::OnednnOperand::kWhole);
      if (!layout) return {};
    }
    FusedNode made =
        detail::OnednnEpilogue::Extended(query, kFused, kFirstOperand, *step, operand, *layout);
    // Check that oneDNN has a kernel for these layouts with these steps.
    std::vector<Shape> operands;
    const size_t first = query.node.def.type() == kFused ? kFirstOperand : query.node.inputs.size();
    for (size_t i = first; i < query.node.inputs.size(); ++i)
      operands.push_back(query.node.inputs[i].shape.ToShape());
    if (operand >= 0) operands.push_back(query.next.inputs[detail::Index(operand)].shape.ToShape());
    const Shape x = query.node.inputs[0].shape.ToShape(), w = query.node.inputs[1].shape.ToShape();
    const detail::OnednnConv conv(
        {WindowAttributes(made.def), detail::ConvGroups(made.def), x, w, y,
         !made.def.inputs()[2].empty(), detail::OnednnTypeOf(query.node.inputs[0].dtype),
         detail::OnednnEpilogue(made.def, kFirstOperand), Spreads(operands, y)});
    const std::vector<Layout>& layouts = made.config.input_layouts;
    const int64_t x_block = detail::OnednnBlockOf(layouts[0]);
    try {
      const OnednnScope scope;
      const auto kernel = conv.Make(x_block, WeightsOf(conv, layouts[1]),
                                    detail::OnednnBlockOf(made.config.output_layouts[0]));
      if (x_block > 0 ? !detail::IsOnednnCompiled(kernel) : detail::IsOnednnReference(kernel))
        return {};
    } catch (const dnnl::error&) {
      return {};
    }
    return made;
  }

  bool RunOnDevice() override {
    const detail::OnednnType type = detail::RequireOnednnType(Input(0).dtype());
    const Tensor &x = DenseInput(0), &w = DenseInput(1);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    pointers_.assign({x.raw_data(), w.raw_data(), HasInput(2) ? DenseInput(2).raw_data() : nullptr,
                      y->raw_data()});
    for (size_t i = 0; i < epilogue_.operands(); ++i)
      pointers_.push_back(DenseInput(static_cast<int>(kFirstOperand + i)).raw_data());
    primitive_.Run(*this, inference().version(), pointers_, [&](int threads) {
      if (!detail::CanBlock(x.shape()))
        throw UnsupportedOperatorFeature("it has kernels for 1 to 3 spatial axes");
      std::vector<Shape> operands;
      for (size_t i = 0; i < epilogue_.operands(); ++i)
        operands.push_back(Input(static_cast<int>(kFirstOperand + i)).shape());
      const detail::OnednnConv conv({attributes_, groups_, x.shape(), w.shape(), y->shape(),
                                     HasInput(2), type, epilogue_, Spreads(operands, y->shape())});
      return conv.Cut(threads, WeightsOf(conv, w.layout()), detail::OnednnBlockOf(x.layout()),
                      detail::OnednnBlockOf(y->layout()));
    });
    return true;
  }

 private:
  static constexpr const char* kFused = "FusedConv";
  static constexpr size_t kFirstOperand = 3;

  static std::vector<detail::OnednnOperand> Spreads(const std::vector<Shape>& operands,
                                                    const Shape& y) {
    std::vector<detail::OnednnOperand> spreads;
    for (const Shape& shape : operands) spreads.push_back(detail::OnednnOperandOf(shape, y));
    return spreads;
  }
  static dnnl::memory::desc WeightsOf(const detail::OnednnConv& conv, const Layout& layout) {
    return layout.is_standard() ? conv.StandardWeights()
                                : detail::OnednnDescriptorOf(layout).desc();
  }
  // Returns the reason if the node should not be computed in blocks of any size.
  static std::string WhyNotBlocked(const KernelQuery& query, const detail::OnednnConv& conv,
                                   bool takes_standard) {
    if (!query.inputs[1].constant)
      return "its weights are not constant, and would be converted in every run";
    const bool is_narrow_group = conv.type() == detail::OnednnType::bf16 && conv.groups() > 1;
    const auto moved = static_cast<double>(query.inputs[0].shape.ToShape().numel() +
                                           query.outputs[0].shape.ToShape().numel());
    if (detail::OnednnBlockOf(query.inputs[0].layout) == 0 && !takes_standard && !is_narrow_group &&
        conv.flops() < kLeastIntensity * moved)
      return StrCat("it would convert for ", static_cast<int64_t>(conv.flops() / moved),
                    " operations an element, from ", static_cast<int64_t>(kLeastIntensity),
                    " on it is faster");
    return {};
  }
  // Proposes a configuration in the standard layout, if oneDNN has a fast kernel for it.
  static void ProposeStandard(const KernelQuery& query, const detail::OnednnConv& conv,
                              std::vector<KernelConfig>& configs) {
    if (conv.type() == detail::OnednnType::f32 && conv.flops() < detail::kOnednnLeastFlops &&
        query.def.backends() != kOnednnBackend)
      return;
    try {
      const auto kernel = conv.Make(0, conv.StandardWeights(), 0);
      if (!detail::IsOnednnReference(kernel)) configs.emplace_back();
    } catch (const dnnl::error&) {  // no kernel, so no second configuration
    }
  }

  // The least number of operations for each element. With fewer operations, a single convolution
  // loses more time by converting layouts than its kernel saves.
  static constexpr double kLeastIntensity = 100;
  const detail::OnednnEpilogue epilogue_{def(), kFirstOperand};
  std::vector<const void*> pointers_;  // the arguments of a run
  detail::OnednnPrimitive primitive_;
};

OPKIT_OPERATOR_SCHEMA(FusedConv)
    .Doc("A Conv, and what is done to each element of its output in the same pass.")
    .Private()
    .NumInputs(2, 64)
    .NumOutputs(1)
    .Input(0, "X", "as Conv's")
    .Input(1, "W", "as Conv's")
    .Input(2, "B", "as Conv's; behind it what the steps read, in their order")
    .Output(0, "Y", "as Conv's")
    .FillUsing([](OpSchema& schema) { FillWindowSchema(schema, kAutoPadDoc, kPadsDoc); })
    .Arg<int64_t>("group", "groups that channels and kernels are divided into", 1)
    .Arg<std::vector<int64_t>>("kernel_shape", "as Conv's")
    .FillUsing(&detail::OnednnEpilogue::Describe)
    .Infer([](InferenceContext& c) { detail::InferConv(c); })
    .Cost([](auto&, auto& inputs, auto& outputs) {
      return WindowCost(detail::ConvFlops(inputs[1], outputs[0]), inputs, outputs, 1);
    });
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Conv, onednn, ConvOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(FusedConv, onednn, ConvOnednnOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_CONV_HPP_

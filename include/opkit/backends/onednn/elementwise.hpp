// Activations and arithmetic in blocks of channels for the "onednn" backend. The operands of
// arithmetic are images, numbers, or one number for each channel.
#ifndef OPKIT_BACKENDS_ONEDNN_ELEMENTWISE_HPP_
#define OPKIT_BACKENDS_ONEDNN_ELEMENTWISE_HPP_

#include "opkit/backends/onednn/blocks.hpp"
#include "opkit/backends/onednn/primitive.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/variadic.hpp"
#include "opkit/ops/nn/activation.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Throws UnsupportedOperatorFeature for large images if three quarters of their blocks are pads. It
// takes less time to convert such images and to compute them without pads. For Propose.
inline void RequireFewPads(const KernelQuery& query, int64_t block) {
  constexpr int64_t kLarge = 16384;  // elements
  const Shape y = query.outputs[0].shape.ToShape();
  if (4 * y[1] <= block && y.numel() >= kLarge)
    throw UnsupportedOperatorFeature(
        StrCat("most of the blocks of ", block, " would be pads of ", y[1], " channels"));
}

// The base of the operators of one input (and of Clip, whose limits it ignores). Runs in the layout
// of input 0, if that is in blocks of channels.
class UnaryInBlocks : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query, 1);
    const int64_t block = RequireOnednnBlocks(query);
    RequireFewPads(query, block);
    return {OnednnBlocksConfig(query, block, true)};
  }
};

// Relu, HardSigmoid and others: computes y = Function(x, attributes), with the functions of the
// reference kernels. kKeepsZero: Function(0) is 0, so that pads stay 0.
template <class Function, bool kKeepsZero>
class ActivationInBlocks : public UnaryInBlocks {
 public:
  ActivationInBlocks(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : UnaryInBlocks(def, ws, config) {
    for (int i = 0; const AttributeSchema& attribute : schema().attributes())
      attributes_[i++] = Arg<float>(attribute.name);
  }
  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const Tensor& x = Input(0);
    const OnednnBlocks blocks(x.shape(), RequireOnednnBlocks(*this, x.layout()));
    Tensor* out = InferredOutput(0);
    const auto* in = static_cast<const float*>(x.raw_data());
    auto* y = static_cast<float*>(out->raw_mutable_data());
    float attributes[2] = {attributes_[0], attributes_[1]};
    blocks.ForEachStretch([&](int64_t plane, int64_t begin, int64_t end) {
      const float* from = in + plane * blocks.plane();
      float* to = y + plane * blocks.plane();
      for (int64_t i = begin; i < end; ++i)
        if constexpr (requires { Function::Apply(1.f, attributes); })
          to[i] = Function::Apply(from[i], attributes);
        else
          to[i] = Function::Apply(from[i]);
    });
    if (!kKeepsZero) blocks.ClearPads(y);
    return true;
  }

 private:
  float attributes_[2] = {};
};

// Sigmoid and Tanh, for which oneDNN has vector code.
template <dnnl::algorithm kAlgorithm>
class SmoothInBlocks : public UnaryInBlocks {
 public:
  using UnaryInBlocks::UnaryInBlocks;

  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const Tensor& x = Input(0);
    const OnednnBlocks blocks(x.shape(), RequireOnednnBlocks(*this, x.layout()));
    Tensor* y = InferredOutput(0);
    primitive_.Run(*this, inference().version(), {x.raw_data(), y->raw_data()}, [&](int threads) {
      constexpr double kFlops = 12;  // operations for each element
      const int64_t parts =
          OnednnPieces(kFlops * static_cast<double>(blocks.floats()), threads, blocks.planes());
      std::vector<OnednnPiece> pieces;
      for (int64_t i = 0; i < parts; ++i) {
        const int64_t first = blocks.planes() * i / parts * blocks.plane();
        const int64_t last = blocks.planes() * (i + 1) / parts * blocks.plane();
        const dnnl::memory::desc desc = RowMajorDesc({last - first});
        const dnnl::eltwise_forward::primitive_desc kernel(
            OnednnEngine(), dnnl::prop_kind::forward_inference, kAlgorithm, desc, desc, 0.f, 0.f,
            OnednnAttributes());
        pieces.push_back({dnnl::eltwise_forward(kernel),
                          {{DNNL_ARG_SRC, desc, first}, {DNNL_ARG_DST, desc, first}},
                          kernel.scratchpad_desc()});
      }
      return pieces;
    });
    blocks.ClearPads(static_cast<float*>(y->raw_mutable_data()));
    return true;
  }

 private:
  OnednnPrimitive primitive_;
};

// Computes y = Function(a, b). One operand is images in blocks, of the output's shape. The other
// operand is images, too, or a number, or has the shape [N, C, 1, …] or [1, C, 1, …].
template <class Function>
class ArithmeticInBlocks : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query);
    if (query.inputs.size() != 2)
      throw UnsupportedOperatorFeature(
          StrCat("it takes two inputs, and the node has ", query.inputs.size()));
    const Shape y = query.outputs[0].shape.ToShape();
    int64_t block = 0;
    for (const TensorInfo& input : query.inputs)
      if (!block && input.shape.ToShape() == y) block = OnednnBlockOf(input.layout);
    if (block == 0)
      throw UnsupportedOperatorFeature(
          "it works in blocks of channels, and no input of the output's shape comes in them");
    RequireFewPads(query, block);
    KernelConfig config;
    for (size_t i = 0; i < 2; ++i) {
      const Shape shape = query.inputs[i].shape.ToShape();
      const OnednnOperand operand = OnednnOperandOf(shape, y);
      if (operand == OnednnOperand::kOther)
        throw UnsupportedOperatorFeature(
            StrCat("input ", i, " is ", ToString(shape), " beside ", ToString(y),
                   ", expected images, a number, or a number for each channel"));
      // Refuse if a large operand in the standard layout would have to be converted. The chain of
      // nodes in blocks then ends before this node.
      if (operand == OnednnOperand::kWhole && OnednnBlockOf(query.inputs[i].layout) == 0 &&
          !query.inputs[i].constant && OnednnBlockOf(query.inputs[1 - i].layout) != 0 &&
          y.numel() * 4 > kMostConverted)
        throw UnsupportedOperatorFeature(
            StrCat("input ", i, " would be converted, which takes as long as the operator itself"));
      config.input_layouts.push_back(
          operand == OnednnOperand::kNumber ? Layout() : OnednnBlocked(shape, block));
      if (operand == OnednnOperand::kWhole) config.inplace.emplace_back(static_cast<int>(i), 0);
    }
    config.output_layouts = {OnednnBlocked(y, block)};
    return {config};
  }

  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const int64_t block = RequireOnednnBlocks(*this, OutputLayout(0));
    const Tensor &a = Input(0), &b = Input(1);
    Tensor* out = InferredOutput(0);
    const OnednnBlocks blocks(out->shape(), block);
    const Source left(a, *out, blocks), right(b, *out, blocks);
    auto* y = static_cast<float*>(out->raw_mutable_data());
    blocks.ForEachStretch([&](int64_t plane, int64_t begin, int64_t end) {
      const float *x1 = left.At(plane, begin), *x2 = right.At(plane, begin);
      float* to = y + plane * blocks.plane() + begin;
      const int64_t n = end - begin;
      if (left.operand == OnednnOperand::kWhole && right.operand == OnednnOperand::kWhole) {
        for (int64_t i = 0; i < n; ++i) to[i] = Function::Apply(x1[i], x2[i]);
      } else if (right.operand == OnednnOperand::kNumber) {
        const float number = *x2;
        for (int64_t i = 0; i < n; ++i) to[i] = Function::Apply(x1[i], number);
      } else if (left.operand == OnednnOperand::kNumber) {
        const float number = *x1;
        for (int64_t i = 0; i < n; ++i) to[i] = Function::Apply(number, x2[i]);
      } else if (right.operand == OnednnOperand::kChannels &&
                 left.operand == OnednnOperand::kWhole) {
        const OnednnPattern pattern(x2, block);
        ForEachPatterned(x1, to, n,
                         [&](float x, int64_t k) { return Function::Apply(x, pattern.data()[k]); });
      } else {
        const OnednnPattern pattern(x1, block);
        ForEachPatterned(x2, to, n,
                         [&](float x, int64_t k) { return Function::Apply(pattern.data()[k], x); });
      }
    });
    blocks.ClearPads(y);
    return true;
  }

 private:
  static constexpr int64_t kMostConverted = 16384;  // bytes

  // An operand and how it is broadcast.
  struct Source {
    OnednnOperand operand;
    const float* data;
    int64_t plane, planes;  // floats in a plane; number of planes, after which they repeat

    Source(const Tensor& tensor, const Tensor& y, const OnednnBlocks& blocks)
        : operand(OnednnOperandOf(tensor.shape(), y.shape())),
          data(static_cast<const float*>(tensor.raw_data())) {
      plane = operand == OnednnOperand::kWhole ? blocks.plane() : blocks.block;
      planes = tensor.rank() > 0 && tensor.dim(0) == 1 ? blocks.blocks() : blocks.planes();
    }
    const float* At(int64_t index, int64_t begin) const {
      if (operand == OnednnOperand::kNumber) return data;
      return data + index % planes * plane + (operand == OnednnOperand::kWhole ? begin : 0);
    }
  };
};

}  // namespace detail

// Clip. Reads the limits in each run; in networks they are usually constants.
class ClipOnednnOp final : public detail::UnaryInBlocks {
 public:
  using UnaryInBlocks::UnaryInBlocks;

  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const Tensor& x = Input(0);
    const detail::OnednnBlocks blocks(x.shape(), detail::RequireOnednnBlocks(*this, x.layout()));
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float low = HasInput(1) ? *DenseInput(1).data<float>() : -kInfinity;
    const float high = HasInput(2) ? *DenseInput(2).data<float>() : kInfinity;
    Tensor* out = InferredOutput(0);
    const auto* in = static_cast<const float*>(x.raw_data());
    auto* y = static_cast<float*>(out->raw_mutable_data());
    blocks.ForEachStretch([&](int64_t plane, int64_t begin, int64_t end) {
      const float* from = in + plane * blocks.plane();
      float* to = y + plane * blocks.plane();
      for (int64_t i = begin; i < end; ++i) to[i] = detail::Clamp(from[i], low, high);
    });
    if (low > 0 || high < 0) blocks.ClearPads(y);
    return true;
  }
};

using ReluOnednnOp = detail::ActivationInBlocks<detail::ReluFunction, true>;
using LeakyReluOnednnOp = detail::ActivationInBlocks<detail::LeakyReluFunction, true>;
using HardSigmoidOnednnOp = detail::ActivationInBlocks<detail::HardSigmoidFunction, false>;
using HardSwishOnednnOp = detail::ActivationInBlocks<detail::HardSwishFunction, true>;
using SigmoidOnednnOp = detail::SmoothInBlocks<dnnl::algorithm::eltwise_logistic>;
using TanhOnednnOp = detail::SmoothInBlocks<dnnl::algorithm::eltwise_tanh>;
using AddOnednnOp = detail::ArithmeticInBlocks<detail::AddFunction>;
using SubOnednnOp = detail::ArithmeticInBlocks<detail::SubFunction>;
using MulOnednnOp = detail::ArithmeticInBlocks<detail::MulFunction>;
using DivOnednnOp = detail::ArithmeticInBlocks<detail::DivFunction>;

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Clip, onednn, ClipOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Relu, onednn, ReluOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(LeakyRelu, onednn, LeakyReluOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(HardSigmoid, onednn, HardSigmoidOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(HardSwish, onednn, HardSwishOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Sigmoid, onednn, SigmoidOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Tanh, onednn, TanhOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Add, onednn, AddOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Sum, onednn, AddOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Sub, onednn, SubOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Mul, onednn, MulOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Div, onednn, DivOnednnOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_ELEMENTWISE_HPP_

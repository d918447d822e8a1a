// BatchNormalization of images in blocks of channels for the "onednn" backend: one multiplication
// and one addition for each element. In plans it takes in a Relu behind it.
#ifndef OPKIT_BACKENDS_ONEDNN_NORMALIZATION_HPP_
#define OPKIT_BACKENDS_ONEDNN_NORMALIZATION_HPP_

#include "opkit/backends/onednn/blocks.hpp"
#include "opkit/backends/onednn/epilogue.hpp"
#include "opkit/ops/nn/normalization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The kernel of BatchNormalization and of FusedBatchNormalization, which plans make from a
// BatchNormalization and a Relu.
class BatchNormalizationOnednnOp final : public BatchNormalizationOpBase {
 public:
  using BatchNormalizationOpBase::BatchNormalizationOpBase;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    if (query.def.type() == kFused)
      throw UnsupportedOperatorFeature("only plans make it, of a BatchNormalization");
    RequireOnednnTensors(query, 1);
    const int64_t block = detail::RequireOnednnBlocks(query);
    const Arguments& args = query.def.args();
    if (args.Get<int64_t>("training_mode", 0) != 0 || args.Get<int64_t>("spatial", 1) == 0)
      throw UnsupportedOperatorFeature("it normalizes by given statistics of channels alone");
    return {detail::OnednnBlocksConfig(query, block, true)};
  }

  static std::optional<FusedNode> Fuse(const FusionQuery& query) {
    int operand = -1;
    const auto step = detail::OnednnEpilogue::StepOf(query, operand);
    if (!step || step->name != "Relu" || query.node.def.type() == kFused ||
        !detail::OnednnEpilogue::KeepsOutput(query))
      return {};
    FusedNode made{query.node.def, query.config};
    made.def.Type(kFused).mutable_outputs() = query.next.def.outputs();
    return made;
  }

  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const Tensor& image = Input(0);
    const detail::OnednnBlocks blocks(image.shape(),
                                      detail::RequireOnednnBlocks(*this, image.layout()));
    Tensor* out = InferredOutput(0);
    FindFactors(blocks);
    const auto* in = static_cast<const float*>(image.raw_data());
    auto* y = static_cast<float*>(out->raw_mutable_data());
    blocks.ForEachStretch([&](int64_t plane, int64_t begin, int64_t end) {
      const int64_t at = plane * blocks.plane();
      const int64_t channel = plane % blocks.blocks() * blocks.block;
      const detail::OnednnPattern factor(factors_.data() + channel, blocks.block);
      const detail::OnednnPattern addend(addends_.data() + channel, blocks.block);
      const float *from = in + at + begin, *factors = factor.data(), *addends = addend.data();
      if (has_relu_)
        detail::ForEachPatterned(from, y + at + begin, end - begin, [&](float x, int64_t k) {
          const float value = x * factors[k] + addends[k];
          return value < 0 ? 0 : value;  // a NaN stays a NaN
        });
      else
        detail::ForEachPatterned(from, y + at + begin, end - begin,
                                 [&](float x, int64_t k) { return x * factors[k] + addends[k]; });
    });
    return true;
  }

 private:
  static constexpr const char* kFused = "FusedBatchNormalization";

  // Computes the numbers of Y = X * factor + addend for each channel; both are 0 in pads. Costs
  // about as much as one pixel.
  void FindFactors(const detail::OnednnBlocks& blocks) {
    const auto size = detail::Index(blocks.blocks() * blocks.block);
    factors_.assign(size, 0);
    addends_.assign(size, 0);
    for (int i = 1; i < 5; ++i)
      if (Input(i).dtype() != DType::kFloat32)
        throw UnsupportedOperatorFeature(
            StrCat("it computes float32, and input ", i, " is ", Input(i)));
    const float *scale = DenseInput(1).data<float>(), *bias = DenseInput(2).data<float>();
    const float *mean = DenseInput(3).data<float>(), *variance = DenseInput(4).data<float>();
    for (int64_t c = 0; c < blocks.channels; ++c) {
      const float factor = scale[c] / std::sqrt(variance[c] + static_cast<float>(epsilon_));
      factors_[detail::Index(c)] = factor;
      addends_[detail::Index(c)] = bias[c] - mean[c] * factor;
    }
  }

  const bool has_relu_ = type() == kFused;
  std::vector<float> factors_, addends_;
};

OPKIT_OPERATOR_SCHEMA(FusedBatchNormalization)
    .Doc("A BatchNormalization by given statistics, and Relu of it in the same pass.")
    .Private()
    .NumInputs(5)
    .NumOutputs(1)
    .IdenticalTypeAndShapeOfInput(0)
    .Arg<float>("epsilon", "as BatchNormalization's", 1e-5f)
    .Arg<float>("momentum", "as BatchNormalization's", 0.9f)
    .Arg<int64_t>("training_mode", "0", 0)
    .Arg<int64_t>("spatial", "1", 1)
    .Inplace({{0, 0}})
    .PointwiseCost(3);

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(BatchNormalization, onednn, BatchNormalizationOnednnOp);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(FusedBatchNormalization, onednn,
                                        BatchNormalizationOnednnOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_NORMALIZATION_HPP_

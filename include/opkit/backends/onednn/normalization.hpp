// BatchNormalization of images in blocks of channels for the "onednn" backend: a product and a sum
// for each channel.
#ifndef OPKIT_BACKENDS_ONEDNN_NORMALIZATION_HPP_
#define OPKIT_BACKENDS_ONEDNN_NORMALIZATION_HPP_

#include "opkit/backends/onednn/blocks.hpp"
#include "opkit/ops/nn/normalization.hpp"

namespace opkit::inline OPKIT_ABI {

class BatchNormalizationOnednnOp final : public BatchNormalizationOpBase {
 public:
  using BatchNormalizationOpBase::BatchNormalizationOpBase;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query, 1);
    const int64_t block = detail::RequireOnednnBlocks(query);
    const Arguments& args = query.def.args();
    if (args.Get<int64_t>("training_mode", 0) != 0 || args.Get<int64_t>("spatial", 1) == 0)
      throw UnsupportedOperatorFeature("it normalizes by given statistics of channels alone");
    return {detail::OnednnBlocksConfig(query, block, true)};
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
      detail::ForEachPatterned(
          in + at + begin, y + at + begin, end - begin,
          [&](float x, int64_t k) { return x * factor.data()[k] + addend.data()[k]; });
    });
    return true;
  }

 private:
  // Y = X * factor + addend; both are 0 in pads. As many operations as one pixel takes.
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

  std::vector<float> factors_, addends_;
};

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(BatchNormalization, onednn, BatchNormalizationOnednnOp);

}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_NORMALIZATION_HPP_

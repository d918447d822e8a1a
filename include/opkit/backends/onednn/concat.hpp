// Concat for the "onednn" backend: joins images in blocks of channels along the channels.
#ifndef OPKIT_BACKENDS_ONEDNN_CONCAT_HPP_
#define OPKIT_BACKENDS_ONEDNN_CONCAT_HPP_

#include "opkit/backends/onednn/blocks.hpp"
#include "opkit/ops/concat.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class ConcatOnednnOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query, query.inputs.size());
    const int64_t block = detail::RequireOnednnBlocks(query);
    const Shape y = query.outputs[0].shape.ToShape();
    const auto axis = query.def.args().Get<int64_t>("axis");
    if (axis != 1 && axis != 1 - y.rank())
      throw UnsupportedOperatorFeature("in blocks of channels it joins channels alone");
    KernelConfig config;
    for (size_t i = 0; i < query.inputs.size(); ++i) {
      const Shape x = query.inputs[i].shape.ToShape();
      if (i + 1 < query.inputs.size() && x[1] % block != 0)
        throw UnsupportedOperatorFeature(
            StrCat("input ", i, " has ", x[1], " channels, which do not fill blocks of ", block));
      if (detail::OnednnBlockOf(query.inputs[i].layout) != block)
        throw UnsupportedOperatorFeature(StrCat("input ", i, " would be converted first"));
      config.input_layouts.push_back(query.inputs[i].layout);
    }
    config.output_layouts = {detail::OnednnBlocked(y, block)};
    return {config};
  }
  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    Tensor* out = InferredOutput(0);
    const int64_t block = detail::RequireOnednnBlocks(*this, out->layout());
    const detail::OnednnBlocks all(out->shape(), block);
    auto* y = static_cast<float*>(out->raw_mutable_data());
    int64_t before = 0;
    for (int i = 0; i < InputSize(); ++i) {
      const detail::OnednnBlocks part(Input(i).shape(), block);
      const auto* x = static_cast<const float*>(Input(i).raw_data());
      const int64_t planes = part.blocks();
      part.ForEachStretch([&](int64_t plane, int64_t begin, int64_t end) {
        const int64_t to = plane / planes * all.blocks() + before + plane % planes;
        std::copy(x + plane * part.plane() + begin, x + plane * part.plane() + end,
                  y + to * all.plane() + begin);
      });
      before += planes;
    }
    return true;
  }
};

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Concat, onednn, ConcatOnednnOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_CONCAT_HPP_

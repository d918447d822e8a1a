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
      if (detail::OnednnBlockOf(query.inputs[i].layout) == 0)
        throw UnsupportedOperatorFeature(StrCat("input ", i, " would be converted first"));
      config.input_layouts.push_back(detail::OnednnBlocked(query.inputs[i].shape.ToShape(), block));
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
    int64_t before = 0;  // channels
    for (int i = 0; i < InputSize(); ++i) {
      const detail::OnednnBlocks part(Input(i).shape(), block);
      const auto* x = static_cast<const float*>(Input(i).raw_data());
      // If `lane` is not 0, each block of the input begins in the middle of an output block and
      // ends in the next output block. The input's pads are written, too, and the next input
      // overwrites them.
      const int64_t lane = before % block;
      part.ForEachStretch([&](int64_t plane, int64_t begin, int64_t end) {
        const int64_t at = plane % part.blocks();
        const float* from = x + plane * part.plane() + begin;
        float* to =
            y + begin + (plane / part.blocks() * all.blocks() + before / block + at) * all.plane();
        CopyLanes(from, end - begin, block, block - lane, to + lane);
        if ((std::min)(part.channels - at * block, block) > block - lane)
          CopyLanes(from + block - lane, end - begin, block, lane, to + all.plane());
      });
      before += part.channels;
      if (lane != 0 && i + 1 == InputSize()) all.ClearPads(y);
    }
    return true;
  }

 private:
  // For each pixel, copies `lanes` channels from `x` to `y`. `floats`: the length of both, in
  // blocks.
  static void CopyLanes(const float* x, int64_t floats, int64_t block, int64_t lanes, float* y) {
    if (lanes == block)
      std::copy_n(x, floats, y);
    else if (lanes == 8)  // a constant, which compilers copy by vectors
      for (int64_t i = 0; i < floats; i += block) std::copy_n(x + i, 8, y + i);
    else
      for (int64_t i = 0; i < floats; i += block) std::copy_n(x + i, lanes, y + i);
  }
};

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Concat, onednn, ConcatOnednnOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_CONCAT_HPP_

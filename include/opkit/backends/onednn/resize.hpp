// Resize by whole factors for the "onednn" backend, of images in blocks of channels: each pixel
// becomes a rectangle of equal pixels.
#ifndef OPKIT_BACKENDS_ONEDNN_RESIZE_HPP_
#define OPKIT_BACKENDS_ONEDNN_RESIZE_HPP_

#include "opkit/backends/onednn/blocks.hpp"
#include "opkit/ops/nn/resize.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class ResizeOnednnOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query, 1);
    const int64_t block = detail::RequireOnednnBlocks(query);
    const ResizeRules rules(query.def.args());
    const auto picks = [&](ResizeCoordinates coordinates, NearestMode nearest) {
      return rules.coordinates == coordinates && rules.nearest == nearest;
    };
    // With a whole factor, an output pixel lies in one input pixel. Only these two combinations of
    // attributes select that input pixel.
    if (rules.mode != ResizeMode::kNearest || !rules.all_axes ||
        !(picks(ResizeCoordinates::kAsymmetric, NearestMode::kFloor) ||
          picks(ResizeCoordinates::kHalfPixel, NearestMode::kRoundPreferFloor)))
      throw UnsupportedOperatorFeature("it takes the nearest pixel, by a whole factor, alone");
    const Shape x = query.inputs[0].shape.ToShape(), y = query.outputs[0].shape.ToShape();
    if (x.rank() != 4 || x[0] != y[0] || x[1] != y[1] || y[2] % x[2] != 0 || y[3] % x[3] != 0)
      throw UnsupportedOperatorFeature(StrCat("it makes images larger by a whole factor, not ",
                                              ToString(x), " to ", ToString(y)));
    // Coordinates are computed from the scales, which may differ from the ratio of the sizes.
    if (query.inputs.size() > 2 && !query.def.inputs()[2].empty()) {
      const Tensor* scales = query.inputs[2].constant;
      if (!scales) throw UnsupportedOperatorFeature("its scales are not constant");
      const std::vector<float> found = detail::FloatList(*scales, "scales");
      for (size_t i = 0; i < found.size(); ++i)
        if (found[i] * static_cast<float>(x[static_cast<int>(i)]) !=
            static_cast<float>(y[static_cast<int>(i)]))
          throw UnsupportedOperatorFeature(
              StrCat("it makes images larger by a whole factor, not by ", found[i]));
    }
    return {detail::OnednnBlocksConfig(query, block, false)};
  }

  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    const Tensor& image = Input(0);
    const int64_t block = detail::RequireOnednnBlocks(*this, image.layout());
    Tensor* out = InferredOutput(0);
    const auto* x = static_cast<const float*>(image.raw_data());
    auto* y = static_cast<float*>(out->raw_mutable_data());
    const int64_t rows = image.dim(2), columns = image.dim(3);
    const int64_t high = out->dim(2) / rows, wide = out->dim(3) / columns;
    const int64_t line = columns * wide * block;  // floats of a line of the output
    constexpr int64_t kGrainFloats = 8192;
    const int64_t lines = detail::OnednnBlocks(image.shape(), block).planes() * rows;
    ParallelForRange(lines, kGrainFloats / (line * high) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* from = x + i * columns * block;
        float* first = y + i * high * line;
        float* to = first;
        for (int64_t column = 0; column < columns; ++column, from += block)
          for (int64_t k = 0; k < wide; ++k, to += block) std::copy_n(from, block, to);
        for (int64_t k = 1; k < high; ++k) std::copy_n(first, line, first + k * line);
      }
    });
    return true;
  }
};

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Resize, onednn, ResizeOnednnOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_RESIZE_HPP_

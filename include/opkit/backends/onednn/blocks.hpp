// Loops over images in blocks of channels, for the cheap operators that keep the layout of their
// input. Memory limits their speed, so they are plain loops on the toolkit's own threads.
#ifndef OPKIT_BACKENDS_ONEDNN_BLOCKS_HPP_
#define OPKIT_BACKENDS_ONEDNN_BLOCKS_HPP_

#include "opkit/backends/onednn/layout.hpp"
#include "opkit/engine/context_parallel_for.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The extents of images in blocks of channels: [planes, pixels, block], where a plane is one block
// of channels of one image. The last block is filled up with pads, which are 0.
struct OnednnBlocks {
  int64_t batch, channels, pixels, block;

  OnednnBlocks(const Shape& shape, int64_t block_size)
      : batch(shape[0]),
        channels(shape[1]),
        pixels(shape.NumelBetween(2, shape.rank())),
        block(block_size) {}
  int64_t blocks() const { return (channels + block - 1) / block; }
  int64_t planes() const { return batch * blocks(); }
  int64_t plane() const { return pixels * block; }  // floats
  int64_t floats() const { return planes() * plane(); }

  // Calls f(plane, begin, end) for pieces of a plane's floats, of whole pixels each, on the threads
  // of the current pool.
  template <class F>
  void ForEachStretch(F f) const {
    constexpr int64_t kStretch = 4096;  // floats, a few microseconds
    const int64_t size = (std::min)(plane(), kStretch / block * block);
    const int64_t stretches = (plane() + size - 1) / size;
    const int64_t grain = size < kStretch ? (kStretch + size - 1) / size : 1;
    ParallelForRange(planes() * stretches, grain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t begin = i % stretches * size;
        f(i / stretches, begin, (std::min)(begin + size, plane()));
      }
    });
  }
  // Sets the pads to 0. For operators that change pads to other values.
  void ClearPads(float* y) const {
    const int64_t used = channels % block;
    if (used == 0) return;
    for (int64_t image = 0; image < batch; ++image) {
      float* pixel = y + ((image + 1) * blocks() - 1) * plane();
      for (int64_t p = 0; p < pixels; ++p, pixel += block)
        for (int64_t k = used; k < block; ++k) pixel[k] = 0;
    }
  }
};

// The numbers of one block of channels, repeated to 64 floats, so that a loop over pixels can use
// vectors of any width.
class OnednnPattern {
 public:
  static constexpr int64_t kSize = 64;  // floats, a multiple of every block

  OnednnPattern(const float* block, int64_t size) {
    for (int64_t i = 0; i < kSize; ++i) values_[i] = block[i % size];
  }
  const float* data() const { return values_; }

 private:
  alignas(64) float values_[kSize];
};
// Computes y[i] = f(x[i], k) for n floats from the beginning of a block, where k is the element's
// index in an OnednnPattern. Writes through a buffer: y may be x, and without a buffer the compiler
// assumes that a write changes x.
template <class F>
void ForEachPatterned(const float* x, float* y, int64_t n, F f) {
  constexpr int64_t kSize = OnednnPattern::kSize;
  alignas(64) float made[kSize];
  for (; n >= kSize; n -= kSize, x += kSize, y += kSize) {
    for (int64_t k = 0; k < kSize; ++k) made[k] = f(x[k], k);
    std::copy_n(made, kSize, y);
  }
  for (int64_t k = 0; k < n; ++k) y[k] = f(x[k], k);
}

// Returns the block of channels of input 0's layout. Throws UnsupportedOperatorFeature for other
// layouts, because other backends are as fast for them. For Propose.
inline int64_t RequireOnednnBlocks(const KernelQuery& query) {
  const int64_t block = OnednnBlockOf(query.inputs[0].layout);
  if (block == 0)
    throw UnsupportedOperatorFeature(StrCat("it works in blocks of channels, and input 0 comes in ",
                                            ToString(query.inputs[0].layout),
                                            ", where other backends are as fast"));
  return block;
}
// Returns the block of channels of `layout`. Throws UnsupportedOperatorFeature for other layouts.
// For runs.
inline int64_t RequireOnednnBlocks(const OperatorBase& op, const Layout& layout) {
  const int64_t block = OnednnBlockOf(layout);
  if (block == 0)
    throw UnsupportedOperatorFeature(StrCat("the kernel of ", op.type(), " for \"", kOnednnBackend,
                                            "\" works in blocks of channels alone"));
  return block;
}
// How an operand of arithmetic is broadcast to images [N, C, D1, …]. kWhole: the operand has their
// shape. kNumber: one number. kChannels: one number for each channel, [N, C, 1, …] or [1, C, 1, …].
enum class OnednnOperand : uint8_t { kWhole, kNumber, kChannels, kOther };
inline OnednnOperand OnednnOperandOf(const Shape& shape, const Shape& y) {
  if (shape == y) return OnednnOperand::kWhole;
  if (shape.numel() == 1) return OnednnOperand::kNumber;
  if (shape.rank() != y.rank() || shape[1] != y[1] || (shape[0] != 1 && shape[0] != y[0]))
    return OnednnOperand::kOther;
  for (int axis = 2; axis < shape.rank(); ++axis)
    if (shape[axis] != 1) return OnednnOperand::kOther;
  return OnednnOperand::kChannels;
}

// Returns a configuration with input 0 and output 0 in blocks, and all other tensors in the
// standard layout.
inline KernelConfig OnednnBlocksConfig(const KernelQuery& query, int64_t block, bool inplace) {
  KernelConfig config;
  config.input_layouts.resize(query.inputs.size());
  config.input_layouts[0] = query.inputs[0].layout;
  config.output_layouts.resize(query.outputs.size());
  config.output_layouts[0] = OnednnBlocked(query.outputs[0].shape.ToShape(), block);
  if (inplace) config.inplace = {{0, 0}};
  return config;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_ONEDNN_BLOCKS_HPP_

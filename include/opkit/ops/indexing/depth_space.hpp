// DepthToSpace and SpaceToDepth: move elements between the channels of an image and blocks of its
// pixels. Source: https://onnx.ai/onnx/operators/onnx__DepthToSpace.html and
// onnx__SpaceToDepth.html, opset 28.
#ifndef OPKIT_OPS_INDEXING_DEPTH_SPACE_HPP_
#define OPKIT_OPS_INDEXING_DEPTH_SPACE_HPP_

#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/strided_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Infers the output of both operators: [N, C * channels, H * pixels, W * pixels], where a factor
// below 1 is a division.
inline void InferDepthSpace(InferenceContext& c, bool to_space) {
  const SymbolicShape& input = c.input_shape(0);
  const auto block = c.Arg<int64_t>("blocksize");
  constexpr int64_t kLargest = 1 << 15;  // the square and its products stay far from overflow
  if (block < 1 || block > kLargest)
    Throw(ErrorCode::kInvalidArgument, c.def().type(), ": blocksize is ", block, ", expected 1 to ",
          kLargest);
  SymbolicShape shape = SymbolicShape::OfRank(4);
  if (input.has_rank()) {
    if (input.rank() != 4)
      Throw(ErrorCode::kInvalidArgument, c.def().type(), ": the input has shape ", ToString(input),
            ", expected rank 4");
    shape[0] = input[0];
    for (int axis = 1; axis < 4; ++axis) {
      if (!input[axis].is_known()) continue;
      const bool divides = (axis == 1) == to_space;
      const int64_t factor = axis == 1 ? block * block : block, extent = input[axis].value();
      if (divides && extent % factor != 0)
        Throw(ErrorCode::kInvalidArgument, c.def().type(), ": axis ", axis, " of the input ",
              ToString(input), " is not a multiple of ", factor);
      shape[axis] = divides ? extent / factor : extent * factor;
    }
  }
  c.SetOutput(0, c.input_dtype(0), shape);
}

OPKIT_NODE_GRADIENT(DepthToSpace) {
  Arguments args = Def().args();
  // SpaceToDepth has `mode` since opset 28: without need the gradient stays readable before that.
  if (args.Get<std::string>("mode", "DCR") == "DCR") args.Remove("mode");
  Give(0, "SpaceToDepth", {GO(0)}, std::move(args));
}
OPKIT_NODE_GRADIENT(SpaceToDepth) { Give(0, "DepthToSpace", {GO(0)}, Def().args()); }

}  // namespace detail

// The base of the kernels. They copy between the image with many channels ("deep") and the one with
// many pixels ("wide").
template <class Context>
class DepthSpaceBase : public StandardOperatorOn<Context> {
 public:
  DepthSpaceBase(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : StandardOperatorOn<Context>(def, ws, config),
        block_(def.args().Get<int64_t>("blocksize")),
        channel_first_(def.args().Get<std::string>("mode", "DCR") == "CRD") {}

 protected:
  // Describes the copy of dense images.
  void AddAxes(const Tensor& x, const Tensor& y) {
    const bool to_space = this->type() == "DepthToSpace";
    const Shape &deep = to_space ? x.shape() : y.shape(), &wide = to_space ? y.shape() : x.shape();
    const int64_t b = block_, channels = wide[1], height = deep[2], width = deep[3];
    const int64_t plane = height * width;
    // In mode DCR a channel of the deep image is [block row, block column, channel], in CRD
    // [channel, block row, block column].
    const int64_t channel = channel_first_ ? b * b * plane : plane;
    const int64_t column = channel_first_ ? plane : channels * plane;
    copy_.Start(ItemSize(x.dtype()));
    auto axis = [&](int64_t extent, int64_t deep_stride, int64_t wide_stride) {
      copy_.Axis(extent, to_space ? deep_stride : wide_stride,
                 to_space ? wide_stride : deep_stride);
    };
    axis(wide[0], deep[1] * plane, channels * wide[2] * wide[3]);
    axis(channels, channel, wide[2] * wide[3]);
    axis(height, width, b * wide[3]);
    axis(b, b * column, wide[3]);
    axis(width, 1, b);
    axis(b, column, 1);
  }
  StridedCopy copy_;

 private:
  const int64_t block_;
  const bool channel_first_;
};

class DepthSpaceOp final : public DepthSpaceBase<CPUContext> {
 public:
  using DepthSpaceBase::DepthSpaceBase;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    AddAxes(x, *y);
    copy_.Run(x.raw_data(), y->raw_mutable_data());
    return true;
  }
};

namespace detail {
inline constexpr char kDepthOrder[] =
    "the order of the channels: DCR is [row, column, channel] of a block, CRD is [channel, row, "
    "column]";
}  // namespace detail

OPKIT_STANDARD_OPERATOR(DepthToSpace, kMaker, DepthSpaceOp)
    .Input(0, "input", "[N, C, H, W]; C is a multiple of the square of `blocksize`")
    .Output(0, "output", "[N, C / blocksize^2, H * blocksize, W * blocksize]")
    .RequiredArg<int64_t>("blocksize", "the height and width of a block of pixels")
    .Arg("mode", detail::kDepthOrder, {"DCR", "CRD"})
    .Infer([](InferenceContext& c) { detail::InferDepthSpace(c, true); })
    .Doc("Makes a block of pixels of the channels of each pixel.");
OPKIT_STANDARD_OPERATOR(SpaceToDepth, kMaker, DepthSpaceOp)
    .Input(0, "input", "[N, C, H, W]; H and W are multiples of `blocksize`")
    .Output(0, "output", "[N, C * blocksize^2, H / blocksize, W / blocksize]")
    .RequiredArg<int64_t>("blocksize", "the height and width of a block of pixels")
    .Arg("mode", detail::kDepthOrder, {"DCR", "CRD"})
    .Infer([](InferenceContext& c) { detail::InferDepthSpace(c, false); })
    .Doc("Makes the channels of a pixel of each block of pixels.");

}}  // namespace opkit

#endif  // OPKIT_OPS_INDEXING_DEPTH_SPACE_HPP_

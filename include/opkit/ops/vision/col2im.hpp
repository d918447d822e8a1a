// Col2Im: adds the windows of an image, one in each column of a matrix, up to the image. Source:
// https://onnx.ai/onnx/operators/onnx__Col2Im.html, opset 18.
#ifndef OPKIT_OPS_VISION_COL2IM_HPP_
#define OPKIT_OPS_VISION_COL2IM_HPP_

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/window.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the windows along each axis of the image. Throws kInvalidArgument if the attributes, the
// image and the block do not fit each other.
inline WindowAxes Col2ImWindows(const OperatorDef& def, const Dims& image, const Dims& block) {
  const WindowAttributes attributes(def);
  if (image.size() != block.size() || image.size() == 0)
    Throw(ErrorCode::kInvalidArgument, "Col2Im: image_shape ", ToString(image), ", block_shape ",
          ToString(block), ": expected lists of one length, 1 or more");
  attributes.CheckRank(image.size());
  WindowAxes axes;
  for (int i = 0; i < image.size(); ++i) axes.push_back(attributes.At(i, image[i], block[i]));
  return axes;
}
// Returns the product of one member of all axes. Throws kOutOfRange if it exceeds int64.
inline int64_t WindowProduct(const WindowAxes& axes, int64_t WindowAxis::*member) {
  std::vector<int64_t> factors;
  for (const WindowAxis& axis : axes) factors.push_back(axis.*member);
  return Shape(Dims(factors)).numel();
}

// Returns the shape of the output as far as it is known.
inline SymbolicShape Col2ImOutputShape(InferenceContext& c) {
  const SymbolicShape& x = c.input_shape(0);
  const auto image = KnownIntegerList(c, 1, "image_shape of Col2Im");
  const auto block = KnownIntegerList(c, 2, "block_shape of Col2Im");
  if (x.has_rank() && x.rank() != 3)
    Throw(ErrorCode::kInvalidArgument, "Col2Im: the input has shape ", ToString(x),
          ", expected [N, C * elements of a block, blocks]");
  if (!image) return {};
  SymbolicShape y = SymbolicShape::OfRank(image->size() + 2);
  if (x.has_rank()) y[0] = x[0];
  for (int i = 0; i < image->size(); ++i) y[i + 2] = (*image)[i];
  if (block) {
    const WindowAxes axes = Col2ImWindows(c.def(), *image, *block);
    const int64_t elements = WindowProduct(axes, &WindowAxis::kernel);
    const int64_t blocks = WindowProduct(axes, &WindowAxis::output);
    if (x.has_rank() &&
        ((x[1].is_known() && x[1].value() % elements != 0) || !Dim::Compatible(x[2], blocks)))
      Throw(ErrorCode::kInvalidArgument, "Col2Im: the input has shape ", ToString(x),
            ", expected [N, a multiple of ", elements, ", ", blocks, "] for image_shape ",
            ToString(*image), " and block_shape ", ToString(*block));
    if (x.has_rank() && x[1].is_known()) y[1] = x[1].value() / elements;
  }
  return y;
}
inline void InferCol2Im(InferenceContext& c) {
  c.SetOutput(0, c.input_dtype(0), Col2ImOutputShape(c));
}

OPKIT_NODE_GRADIENT(Col2Im) { Give(0, "Col2ImGradient", {I(0), I(1), I(2), GO(0)}, Def().args()); }

inline void FillCol2ImAttributes(OpSchema& schema) {
  schema
      .Arg<std::vector<int64_t>>(
          "dilations",
          "distance of a block's elements along each axis of the image; 1 where it is left out")
      .Arg<std::vector<int64_t>>("pads", kPadsDoc)
      .Arg<std::vector<int64_t>>(
          "strides", "distance of blocks along each axis of the image; 1 where it is left out");
}

}  // namespace detail

// Sums in double; integers wrap around.
class Col2ImOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const WindowAxes axes =
        detail::Col2ImWindows(def(), IntegerList(Input(1), "image_shape of Col2Im"),
                              IntegerList(Input(2), "block_shape of Col2Im"));
    const int64_t elements = detail::WindowProduct(axes, &WindowAxis::kernel);
    const int64_t blocks = detail::WindowProduct(axes, &WindowAxis::output);
    const int64_t pixels = y->shape().NumelBetween(2, y->rank());
    return Visit<NumericTypes>([&]<class T>() {
      using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
      const T* from = x.data<T>();
      T* to = y->mutable_data<T>();
      ParallelFor(y->dim(0) * y->dim(1), [&](int64_t plane) {
        std::vector<Wide> sums(static_cast<size_t>(pixels), Wide(0));
        const T* rows = from + plane * elements * blocks;
        WindowTaps taps(axes);
        for (int64_t block = 0; block < blocks; ++block)
          for (const WindowTap& tap : taps.At(block))
            sums[detail::Index(tap.input)] += static_cast<Wide>(rows[tap.kernel * blocks + block]);
        for (int64_t i = 0; i < pixels; ++i)
          to[plane * pixels + i] = ConvertElement<T>(sums[detail::Index(i)]);
      });
    });
  }
};

// Copies the gradients of the elements of each block.
class Col2ImGradientOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& dy = DenseInput(3);
    Tensor* dx = InferredOutput(0);
    if (dx->numel() == 0) return true;
    const WindowAxes axes =
        detail::Col2ImWindows(def(), IntegerList(Input(1), "image_shape of Col2Im"),
                              IntegerList(Input(2), "block_shape of Col2Im"));
    const int64_t elements = detail::WindowProduct(axes, &WindowAxis::kernel);
    const int64_t blocks = detail::WindowProduct(axes, &WindowAxis::output);
    const int64_t pixels = dy.shape().NumelBetween(2, dy.rank());
    return Visit<FloatTypes>([&]<class T>() {
      const T* from = dy.data<T>();
      T* to = dx->mutable_data<T>();
      ParallelFor(dy.dim(0) * dy.dim(1), [&](int64_t plane) {
        T* rows = to + plane * elements * blocks;
        for (int64_t i = 0; i < elements * blocks; ++i) rows[i] = T(0.f);
        WindowTaps taps(axes);
        for (int64_t block = 0; block < blocks; ++block)
          for (const WindowTap& tap : taps.At(block))
            rows[tap.kernel * blocks + block] = from[plane * pixels + tap.input];
      });
    });
  }
};

OPKIT_STANDARD_OPERATOR(Col2Im, kMaker, Col2ImOp)
    .NumInputs(3)
    .InputsOnHost({1, 2})
    .FillUsing(detail::FillCol2ImAttributes)
    .Input(0, "input", "[N, C * elements of a block, blocks]", NumericTypes::DTypes())
    .Input(1, "image_shape", "extents of the image", {DType::kInt64})
    .Input(2, "block_shape", "extents of a block", {DType::kInt64})
    .Output(0, "output", "[N, C, extents of the image]: 0 where no block reaches",
            NumericTypes::DTypes())
    .PointwiseCost(2)
    .Infer(detail::InferCol2Im)
    .Doc("The sum of blocks at their places in an image.");
OPKIT_STANDARD_OPERATOR(Col2ImGradient, kNotImplemented, Col2ImGradientOp)
    .Private()
    .NumInputs(4)
    .InputsOnHost({1, 2})
    .FillUsing(detail::FillCol2ImAttributes)
    .Input(0, "input", "of Col2Im", FloatTypes::DTypes())
    .Input(1, "image_shape", "of Col2Im", {DType::kInt64})
    .Input(2, "block_shape", "of Col2Im", {DType::kInt64})
    .Input(3, "dY", "of the type of the input, of the shape of Col2Im's output")
    .Output(0, "gradient", "as the input")
    .Infer([](InferenceContext& c) {
      c.SetInput(3, c.input_dtype(0), detail::Col2ImOutputShape(c));
      c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
    })
    .Doc("The gradient of Col2Im, from that of the image: the blocks of the image.");

}}  // namespace opkit

#endif  // OPKIT_OPS_VISION_COL2IM_HPP_

// CenterCropPad: cuts axes to given extents around their middle, or pads them with zeros. Source:
// https://onnx.ai/onnx/operators/onnx__CenterCropPad.html, opset 18.
#ifndef OPKIT_OPS_VISION_CENTER_CROP_PAD_HPP_
#define OPKIT_OPS_VISION_CENTER_CROP_PAD_HPP_

#include <cstring>

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferCenterCropPad(InferenceContext& c) {
  SymbolicShape y = c.input_shape(0);
  const SymbolicShape target = ShapeInInput(c, 1, "CenterCropPad: shape");
  if (y.has_rank()) {
    std::vector<int64_t> axes;
    for (int i = 0; i < y.rank(); ++i) axes.push_back(i);
    axes = c.args().Get<std::vector<int64_t>>("axes", axes);
    const Dims at = NormalizeAxes(axes, y.rank(), "CenterCropPad");
    if (target.has_rank() && target.rank() != at.size())
      Throw(ErrorCode::kInvalidArgument, "CenterCropPad: shape ", ToString(target),
            ", expected one extent for each of ", at.size(), " axes");
    for (int i = 0; i < at.size(); ++i)
      y[static_cast<int>(at[i])] = target.has_rank() ? target[i] : Dim();
  }
  c.SetOutput(0, c.input_dtype(0), y);
}

// Cuts what was padded and pads what was cut.
OPKIT_NODE_GRADIENT(CenterCropPad) {
  std::string shape = Node("Shape", {I(0)});
  if (Def().args().Has("axes"))
    shape = Node("Gather", {shape, Integers(Def().args().Get<std::vector<int64_t>>("axes"))});
  Give(0, "CenterCropPad", {GO(0), shape}, Def().args());
}

}  // namespace detail

class CenterCropPadOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const int64_t item = ItemSize(x.dtype());
    const int rank = x.rank();
    auto* to = static_cast<char*>(y->raw_mutable_data());
    const auto* from = static_cast<const char*>(x.raw_data());
    if (rank == 0) return std::memcpy(to, from, static_cast<size_t>(item)), true;
    std::memset(to, 0, static_cast<size_t>(y->nbytes()));
    // The elements that stay: `extent` of each axis, from begin_x in x and begin_y in y.
    std::vector<int64_t> extent, begin_x, begin_y;
    int64_t rows = 1;
    for (int axis = 0; axis < rank; ++axis) {
      const int64_t in = x.dim(axis), out = y->dim(axis);
      extent.push_back(in < out ? in : out);
      begin_x.push_back(in > out ? (in - out) / 2 : 0);
      begin_y.push_back(out > in ? (out - in) / 2 : 0);
      if (axis < rank - 1) rows *= extent.back();
    }
    const int64_t bytes = extent.back() * item;
    for (int64_t row = 0; row < rows && bytes > 0; ++row) {
      int64_t at_x = begin_x.back(), at_y = begin_y.back(), rest = row;
      int64_t step_x = x.dim(-1), step_y = y->dim(-1);
      for (int axis = rank - 2; axis >= 0; --axis) {
        const size_t i = detail::Index(axis);
        const int64_t index = rest % extent[i];
        rest /= extent[i];
        at_x += (begin_x[i] + index) * step_x;
        at_y += (begin_y[i] + index) * step_y;
        step_x *= x.dim(axis);
        step_y *= y->dim(axis);
      }
      std::memcpy(to + at_y * item, from + at_x * item, static_cast<size_t>(bytes));
    }
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(CenterCropPad, kMaker, CenterCropPadOp)
    .NumInputs(2)
    .InputsOnHost({1})
    .Input(0, "input_data", "any tensor")
    .Input(1, "shape", "a new extent for each of `axes`", IndexTypes::DTypes())
    .Output(0, "output_data", "the input, cut around its middle, or with zeros on both sides")
    .Arg<std::vector<int64_t>>("axes", "the axes; negative ones count from the end; default: all")
    .Infer(detail::InferCenterCropPad)
    .Doc(
        "Axes of given extents around the middle of the input. The odd element of a cut or of a "
        "pad is at the end.");

}}  // namespace opkit

#endif  // OPKIT_OPS_VISION_CENTER_CROP_PAD_HPP_

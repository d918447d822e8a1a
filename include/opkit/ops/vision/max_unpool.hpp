// MaxUnpool: puts the elements of a MaxPool back to the places that its indices name. Source:
// https://onnx.ai/onnx/operators/onnx__MaxUnpool.html, opset 22.
#ifndef OPKIT_OPS_VISION_MAX_UNPOOL_HPP_
#define OPKIT_OPS_VISION_MAX_UNPOOL_HPP_

#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/window.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the shape of the pooled image, in which the indices count.
inline SymbolicShape UnpooledShape(const WindowAttributes& attributes, const SymbolicShape& x) {
  if (attributes.kernel_shape.empty())
    Throw(ErrorCode::kInvalidArgument,
          "MaxUnpool: kernel_shape is empty, expected one extent for each spatial axis");
  if (!x.has_rank()) return {};
  if (x.rank() < 3)
    Throw(ErrorCode::kInvalidArgument, "MaxUnpool: X is ", ToString(x),
          ", expected a batch, channels and at least one spatial axis");
  attributes.CheckRank(x.rank() - 2);
  SymbolicShape y = x;
  for (int axis = 0; axis < x.rank() - 2; ++axis) {
    const WindowAxis steps = attributes.Steps(axis, attributes.kernel_shape[Index(axis)]);
    Dim& extent = y[axis + 2];
    if (!extent.is_known()) {
      extent = Dim();
      continue;
    }
    if (extent.value() > INT32_MAX)
      Throw(ErrorCode::kOutOfRange, "MaxUnpool: X is ", ToString(x), ", which is too large");
    const int64_t pads = steps.pad_begin + steps.pad_end;
    const int64_t size = (extent.value() - 1) * steps.stride + steps.kernel - pads;
    if (extent.value() > 0 && size < 0)
      Throw(ErrorCode::kInvalidArgument, "MaxUnpool: X is ", ToString(x), ", pads are ",
            attributes.pads, ", which leave nothing of spatial axis ", axis);
    extent = extent.value() == 0 ? 0 : size;
  }
  return y;
}

inline void InferMaxUnpool(InferenceContext& c) {
  const WindowAttributes attributes(c.def());
  const SymbolicShape& x = c.input_shape(0);
  const SymbolicShape pooled = UnpooledShape(attributes, x);
  c.SetInput(1, DType::kInt64, x);
  if (!c.HasInput(2)) return c.SetOutput(0, c.input_dtype(0), pooled);
  SymbolicShape y = ShapeInInput(c, 2, "output_shape of MaxUnpool");
  if (!y.has_rank() && pooled.has_rank()) y = SymbolicShape::OfRank(pooled.rank());
  if (y.has_rank() && pooled.has_rank()) {
    bool fits = y.rank() == pooled.rank() && Dim::Compatible(y[0], pooled[0]) &&
                Dim::Compatible(y[1], pooled[1]);
    for (int i = 2; fits && i < y.rank(); ++i)
      fits = !y[i].is_known() || !pooled[i].is_known() || y[i].value() >= pooled[i].value();
    if (!fits)
      Throw(ErrorCode::kInvalidArgument, "MaxUnpool: output_shape is ", ToString(y),
            ", expected no smaller extents than those of the pooled image, ", ToString(pooled));
  }
  c.SetOutput(0, c.input_dtype(0), y);
}

// Each element of X has the gradient of its place, which the index names among all elements.
OPKIT_NODE_GRADIENT(MaxUnpool) {
  if (Def().inputs().size() > 2 && !I(2).empty())
    Throw(ErrorCode::kUnsupported, "MaxUnpool has a gradient only without output_shape");
  const std::string list = Node("Constant", {}, {{"value_ints", {-1}}});
  Give(0, "Gather", {Node("Reshape", {GO(0), list}), I(1)});
}

}  // namespace detail

class MaxUnpoolOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor &x = DenseInput(0), &indices = DenseInput(1);
    Tensor* y = InferredOutput(0);
    const Shape pooled = detail::UnpooledShape(WindowAttributes(def()), x.shape()).ToShape();
    const int64_t* index = indices.data<int64_t>();
    for (int64_t i = 0; i < indices.numel(); ++i)
      if (index[i] < 0 || index[i] >= pooled.numel())
        Throw(ErrorCode::kOutOfRange, "MaxUnpool: index ", index[i], " is outside the ",
              pooled.numel(), " elements of the pooled image");
    const Dims steps = y->shape().DenseStrides();
    auto place = [&](int64_t at) {
      int64_t offset = 0;
      for (int axis = pooled.rank() - 1; axis >= 0; --axis) {
        offset += at % pooled[axis] * steps[axis];
        at /= pooled[axis];
      }
      return offset;
    };
    return Visit<FloatTypes>([&]<class T>() {
      T* out = y->mutable_data<T>();
      std::fill(out, out + y->numel(), T(0.f));
      for (int64_t i = 0; i < x.numel(); ++i) out[place(index[i])] = x.data<T>()[i];
    });
  }
};

OPKIT_STANDARD_OPERATOR(MaxUnpool, kMaker, MaxUnpoolOp)
    .NumInputs(2, 3)
    .InputsOnHost({2})
    .Input(0, "X", "[N, C, D1, ..., Dn]: the largest elements", FloatTypes::DTypes())
    .Input(1, "I", "of the shape of X: the index of each element in the pooled image",
           {DType::kInt64})
    .Input(2, "output_shape",
           "the output's shape; where it is larger than the pooled image, zeros are added at the "
           "end of an axis",
           {DType::kInt64})
    .Output(0, "output", "0 where no index points to", FloatTypes::DTypes())
    .RequiredArg<std::vector<int64_t>>("kernel_shape", "extents of a window of the MaxPool")
    .Arg<std::vector<int64_t>>("pads", kPadsDoc)
    .Arg<std::vector<int64_t>>(
        "strides", "distance of windows along each spatial axis; 1 where it is left out")
    .Infer(detail::InferMaxUnpool)
    .Doc("Undoes a MaxPool, as far as its indices tell: the other elements are 0.");

}}  // namespace opkit

#endif  // OPKIT_OPS_VISION_MAX_UNPOOL_HPP_

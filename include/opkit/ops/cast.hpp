// Cast and CastLike: convert the elements of a tensor to another type. Source:
// https://onnx.ai/onnx/operators/onnx__Cast.html and onnx__CastLike.html, opset 21.
#ifndef OPKIT_OPS_CAST_HPP_
#define OPKIT_OPS_CAST_HPP_

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

template <class From, class To>
void RunCast(const ElementRun& run) {
  const auto* x = static_cast<const StoredType<From>*>(run.in[0]);
  auto* y = static_cast<StoredType<To>*>(run.out);
  for (int64_t i = 0; i < run.n; ++i)
    if constexpr (std::is_same_v<From, bool>)
      y[i] = static_cast<StoredType<To>>(ConvertElement<To>(static_cast<uint8_t>(x[i] != 0)));
    else
      y[i] = static_cast<StoredType<To>>(ConvertElement<To>(x[i]));
}

// Returns the kernel that converts from one type to another; null for types of neither kind.
inline ElementKernel CastKernel(DType from, DType to) {
  return PlainTypes::Find<ElementKernel>(from, [&]<class From>() {
    return PlainTypes::Find<ElementKernel>(to, []<class To>() { return &RunCast<From, To>; });
  });
}

// Returns the dtype with this number in ONNX's enumeration TensorProto.DataType. Throws
// kInvalidArgument for an unknown number, kUnsupported for a type that Cast does not produce.
inline DType CastTarget(int64_t onnx_type) {
  constexpr int64_t kLargest = 26;  // largest number of a type in ONNX 1.22
  if (onnx_type < 1 || onnx_type > kLargest)
    Throw(ErrorCode::kInvalidArgument, "Cast: to=", onnx_type,
          " is no element type of ONNX; expected the number of one, such as 1 for float32");
  const DType dtype = OnnxDType(onnx_type);
  if (dtype == DType::kUndefined || IsComplex(dtype))
    Throw(ErrorCode::kUnsupported, "Cast: to=", onnx_type,
          " is an element type (string, complex, 8 bits of floating point or 4 of an integer) that "
          "it does not convert to; expected one of ",
          PlainTypes::DTypes());
  return dtype;
}

}  // namespace detail

class CastOp : public ElementwiseOperator {
 public:
  CastOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : ElementwiseOperator(def, ws, config),
        to_(detail::CastTarget(GetSingleArgument<int64_t>("to"))) {
    static_cast<void>(GetSingleArgument<int64_t>("saturate"));  // only matters for 8-bit types
  }

  // Proposes the output in place if the element sizes are equal. With different sizes, writes could
  // overwrite elements before they are read.
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    KernelConfig config;
    const int64_t from = ItemSize(query.inputs[0].dtype), to = ItemSize(query.outputs[0].dtype);
    if (from == to && from > 0) config.inplace = {{0, 0}};
    return {config};
  }

 protected:
  DType to() const { return to_; }
  ElementKernel FindKernel() const override { return detail::CastKernel(Input(0).dtype(), to_); }

 private:
  const DType to_;
};

OPKIT_STANDARD_OPERATOR(Cast, kNotImplemented, CastOp)
    .Doc(
        "Converts elements to the type `to`. To bool: whether it is not 0. To an integer: from "
        "an integer the low bits, from a floating-point number the part before the point, the "
        "nearest integer there is for one outside, 0 for NaN. To a floating-point type: the "
        "nearest number, of two the even one, infinity beyond the largest.")
    .Input(0, "input", "a tensor of any shape", PlainTypes::DTypes())
    .Output(0, "output", "of the same shape", PlainTypes::DTypes())
    .RequiredArg<int64_t>("to", "the type's number in ONNX's enumeration TensorProto.DataType")
    .Arg<int64_t>("saturate", "of the 8-bit floating-point types, which are not built", 1)
    .PointwiseCost(1)
    .Infer([](InferenceContext& c) {
      const DType to = detail::CastTarget(c.Arg<int64_t>("to"));
      c.SetOutput(0, to, c.input_shape(0));
      c.SetInput(0, DType::kUndefined, c.output(0).shape);
    });

namespace detail {

OPKIT_NODE_GRADIENT(CastLike) { Give(0, "CastLike", {GO(0), I(0)}); }

}  // namespace detail

// Converts as Cast does, to the type of another tensor, whose shape does not matter.
class CastLikeOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    const ElementKernel kernel = detail::CastKernel(x.dtype(), y->dtype());
    if (!kernel)
      Throw(ErrorCode::kTypeMismatch, "CastLike does not convert ", x.dtype(), " to ", y->dtype());
    ParallelForRange(x.numel(), BroadcastLoop::kGrain, [&](int64_t begin, int64_t end) {
      ElementRun run = {};
      run.in[0] = static_cast<const char*>(x.raw_data()) + begin * ItemSize(x.dtype());
      run.out = static_cast<char*>(y->raw_mutable_data()) + begin * ItemSize(y->dtype());
      run.n = end - begin;
      kernel(run);
    });
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(CastLike, kMaker, CastLikeOp)
    .Doc("Converts elements to the type of another tensor, as Cast does.")
    .NumInputs(2)
    .Input(0, "input", "a tensor of any shape", PlainTypes::DTypes())
    .Input(1, "target_type", "a tensor of any shape; only its type is read", PlainTypes::DTypes())
    .Output(0, "output", "of the shape of the input", PlainTypes::DTypes())
    .Arg<int64_t>("saturate", "of the 8-bit floating-point types, which are not built", 1)
    .PointwiseCost(1)
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, c.input_dtype(1), c.input_shape(0));
      c.SetInput(0, DType::kUndefined, c.output(0).shape);
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_CAST_HPP_

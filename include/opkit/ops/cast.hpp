// Cast: converts the elements of a tensor to another type. Source:
// https://onnx.ai/onnx/operators/onnx__Cast.html, opset 21.
#ifndef OPKIT_OPS_CAST_HPP_
#define OPKIT_OPS_CAST_HPP_

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/elementwise.hpp"

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
  ElementKernel FindKernel() const override {
    return PlainTypes::Find<ElementKernel>(Input(0).dtype(), [&]<class From>() {
      return PlainTypes::Find<ElementKernel>(to_,
                                             []<class To>() { return &detail::RunCast<From, To>; });
    });
  }

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

}}  // namespace opkit

#endif  // OPKIT_OPS_CAST_HPP_

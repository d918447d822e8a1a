// Operators on the bits of numbers: BitCast, BitShift, BitwiseAnd, BitwiseNot, BitwiseOr,
// BitwiseXor. Kernels depend on the size of an element only, but for BitShift. Source: the ONNX
// operator pages (https://onnx.ai/onnx/operators), opset 28.
#ifndef OPKIT_OPS_MATH_BITWISE_HPP_
#define OPKIT_OPS_MATH_BITWISE_HPP_

#include "opkit/ops/math/element_functions.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/strided_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

using UnsignedTypes = ElementTypes<uint8_t, uint16_t, uint32_t, uint64_t>;
using IntegerTypes =
    ElementTypes<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;

namespace detail {

// Returns the unsigned type of the same size.
inline DType UnsignedOfSize(DType dtype) {
  return ItemSize(dtype) == 1   ? DType::kUInt8
         : ItemSize(dtype) == 2 ? DType::kUInt16
         : ItemSize(dtype) == 4 ? DType::kUInt32
                                : DType::kUInt64;
}
template <class F>
ElementKernel BitKernel(DType dtype) {
  return UnsignedTypes::Find<ElementKernel>(UnsignedOfSize(dtype),
                                            []<class T>() { return &RunBinary<F, T>; });
}

// An operator on two integers of one type, computed by F without regard to the sign.
template <class F>
class BitOperator : public ElementwiseOperator {
 public:
  using ElementwiseOperator::ElementwiseOperator;

 protected:
  ElementKernel FindKernel() const override { return BitKernel<F>(Input(0).dtype()); }
};

inline DType BitCastTarget(int64_t onnx_type) {
  const DType dtype = OnnxDType(onnx_type);
  if (dtype == DType::kUndefined)
    Throw(ErrorCode::kUnsupported, "BitCast: to=", onnx_type,
          " is not the number of an element type that tensors have, such as 1 for float32");
  return dtype;
}

}  // namespace detail

using BitwiseAndOp = detail::BitOperator<detail::BitwiseAndFunction>;
using BitwiseOrOp = detail::BitOperator<detail::BitwiseOrFunction>;
using BitwiseXorOp = detail::BitOperator<detail::BitwiseXorFunction>;

class BitwiseNotOp : public ElementwiseOperator {
 public:
  using ElementwiseOperator::ElementwiseOperator;

 protected:
  ElementKernel FindKernel() const override {
    return UnsignedTypes::Find<ElementKernel>(
        detail::UnsignedOfSize(Input(0).dtype()),
        []<class T>() { return &detail::RunUnary<detail::BitwiseNotFunction, T>; });
  }
};

class BitShiftOp : public ElementwiseOperator {
 public:
  using ElementwiseOperator::ElementwiseOperator;

 protected:
  ElementKernel FindKernel() const override {
    return direction_ == Direction::kLeft
               ? detail::BitKernel<detail::ShiftLeftFunction>(Input(0).dtype())
               : IntegerTypes::Find<ElementKernel>(Input(0).dtype(), []<class T>() {
                   return &detail::RunBinary<detail::ShiftRightFunction, T>;
                 });
  }

 private:
  enum class Direction : uint8_t { kLeft, kRight };
  const Direction direction_ = EnumeratorOf<Direction>("BitShift", def().args(), "direction");
};

class BitCastOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    CopyBytes(InferredOutput(0)->raw_mutable_data(), x.raw_data(), x.nbytes());
    return true;
  }
};

#define OPKIT_BITWISE_OPERATOR(name, doc)                                    \
  OPKIT_STANDARD_OPERATOR(name, kNone, name##Op).FillUsing([](OpSchema& s) { \
    detail::DescribeBinary(s, doc, IntegerTypes::DTypes(), 1);               \
  })
OPKIT_BITWISE_OPERATOR(BitwiseAnd, "The bits that are set in A and in B.");
OPKIT_BITWISE_OPERATOR(BitwiseOr, "The bits that are set in A, in B or in both.");
OPKIT_BITWISE_OPERATOR(BitwiseXor, "The bits that are set in one of A and B.");
#undef OPKIT_BITWISE_OPERATOR
OPKIT_STANDARD_OPERATOR(BitwiseNot, kNone, BitwiseNotOp)
    .FillUsing(detail::UnarySchema("The bits that are not set in X.", IntegerTypes::DTypes(), 1));
OPKIT_STANDARD_OPERATOR(BitShift, kNone, BitShiftOp)
    .FillUsing([](OpSchema& schema) {
      detail::DescribeBinary(
          schema,
          "The bits of A, moved by B places. Signed numbers keep their sign in a "
          "shift to the right. A shift by as many places as A has bits, or more, "
          "or by a negative number, gives 0, and to the right -1 for a negative "
          "A.",
          IntegerTypes::DTypes(), 1);
    })
    .RequiredArg("direction", "to the higher places or to the lower ones", {"LEFT", "RIGHT"});
OPKIT_STANDARD_OPERATOR(BitCast, kNone, BitCastOp)
    .Doc("The same bytes as elements of another type of the same size.")
    .Input(0, "input", "a tensor of any shape")
    .Output(0, "output", "of the same shape, of the type `to`")
    .RequiredArg<int64_t>("to", "the type's number in ONNX's enumeration TensorProto.DataType")
    .Inplace({{0, 0}})
    .Infer([](InferenceContext& c) {
      const DType to = detail::BitCastTarget(c.Arg<int64_t>("to")), from = c.input_dtype(0);
      if (from != DType::kUndefined && BitSize(from) != BitSize(to))
        Throw(ErrorCode::kInvalidArgument, "BitCast: elements of ", from, " have ", BitSize(from),
              " bits and those of ", to, " have ", BitSize(to), ", expected the same size");
      c.SetOutput(0, to, c.input_shape(0));
      c.SetInput(0, DType::kUndefined, c.output(0).shape);
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_BITWISE_HPP_

// Constant, ConstantOfShape, EyeLike, Range: create tensors from attributes and a few numbers.
#ifndef OPKIT_OPS_GENERATORS_HPP_
#define OPKIT_OPS_GENERATORS_HPP_

#include "opkit/core/packed.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/strided_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the value of a Constant node. Throws kInvalidArgument unless exactly one attribute gives
// the value.
inline Tensor ConstantValue(const Arguments& args) {
  Tensor value;
  int found = 0;
  const auto take = [&](std::string_view name, auto make) {
    if (!args.Has(name)) return;
    ++found;
    value = make(name);
  };
  take("value", [&](std::string_view name) { return args.Get<Tensor>(name); });
  take("value_int", [&](std::string_view name) { return Tensor::Scalar(args.Get<int64_t>(name)); });
  take("value_float", [&](std::string_view name) { return Tensor::Scalar(args.Get<float>(name)); });
  take("value_ints", [&](std::string_view name) {
    const auto list = args.Get<std::vector<int64_t>>(name);
    return Tensor::From<int64_t>({static_cast<int64_t>(list.size())}, list);
  });
  take("value_floats", [&](std::string_view name) {
    const auto list = args.Get<std::vector<float>>(name);
    return Tensor::From<float>({static_cast<int64_t>(list.size())}, list);
  });
  if (found != 1 || !value.initialized())
    Throw(ErrorCode::kInvalidArgument, "Constant needs one of the arguments 'value', 'value_int', ",
          "'value_ints', 'value_float' and 'value_floats', found ", args.Names());
  return value;
}

// Returns the element that ConstantOfShape repeats. Throws kInvalidArgument unless `value` is one
// element.
inline Tensor FillElement(const Arguments& args) {
  Tensor value = args.Get<Tensor>("value", Tensor::Scalar(0.f));
  if (value.numel() != 1 || !value.initialized())
    Throw(ErrorCode::kInvalidArgument, "ConstantOfShape: 'value' is ", value,
          ", expected one element");
  return value;
}

inline void InferConstantOfShape(InferenceContext& c) {
  const SymbolicShape shape = ShapeInInput(c, 0, "input");
  c.SetOutput(0, FillElement(c.args()).dtype(), shape);
}

// Returns the number in an input of Range. Throws kInvalidArgument unless the input is one element
// of type T.
template <class T>
T RangeNumber(const Tensor& tensor, const char* name) {
  if (tensor.numel() != 1 || tensor.dtype() != kDTypeOf<T>)
    Throw(ErrorCode::kInvalidArgument, "Range: '", name, "' is ", tensor,
          ", expected one element of ", kDTypeOf<T>);
  return tensor.data<T>()[0];
}

using RangeTypes = ElementTypes<float, double, int16_t, int32_t, int64_t, float16, bfloat16>;

// Returns the number of elements of a Range. Returns -1 if the number is not finite or too large:
// 2^63 or more for integers, 2^62 or more for floating-point numbers. Throws kInvalidArgument for a
// delta of 0.
template <class T>
int64_t RangeSize(T start, T limit, T delta) {
  if (delta == T(0))
    Throw(ErrorCode::kInvalidArgument, "Range: 'delta' is 0, expected another number");
  if constexpr (std::is_integral_v<T>) {
    const bool up = delta > 0;
    if (up ? limit <= start : limit >= start) return 0;
    const auto wide = [](T value) { return static_cast<uint64_t>(static_cast<int64_t>(value)); };
    const uint64_t distance = up ? wide(limit) - wide(start) : wide(start) - wide(limit);
    const uint64_t step = up ? wide(delta) : uint64_t{0} - wide(delta);
    const uint64_t count = (distance - 1) / step + 1;
    return count >> 63 ? -1 : static_cast<int64_t>(count);
  } else {
    const double distance = static_cast<double>(limit) - static_cast<double>(start);
    const double count = distance / static_cast<double>(delta);
    if (!(count > 0)) return count == count ? 0 : -1;
    if (count >= 0x1p62) return -1;
    const auto whole = static_cast<int64_t>(count);
    return static_cast<double>(whole) < count ? whole + 1 : whole;
  }
}

// Returns number i of a Range.
template <class T>
OPKIT_HOST_DEVICE T RangeElement(T start, T delta, int64_t i) {
  if constexpr (std::is_integral_v<T>) {  // unsigned: `i * delta` may overflow int64, although the
                                          // sum is in range
    return static_cast<T>(static_cast<uint64_t>(start) +
                          static_cast<uint64_t>(i) * static_cast<uint64_t>(delta));
  } else {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    return static_cast<T>(static_cast<Wide>(start) +
                          static_cast<Wide>(i) * static_cast<Wide>(delta));
  }
}

inline void InferRange(InferenceContext& c) {
  const DType dtype = ExpectSameDType(c);
  SymbolicShape shape = SymbolicShape::OfRank(1);
  const Tensor *start = c.input_constant(0), *limit = c.input_constant(1);
  const Tensor* delta = c.input_constant(2);
  if (start && limit && delta)
    RangeTypes::Visit(dtype, [&]<class T>() {
      const int64_t size =
          RangeSize(RangeNumber<T>(*start, "start"), RangeNumber<T>(*limit, "limit"),
                    RangeNumber<T>(*delta, "delta"));
      if (size < 0)
        Throw(ErrorCode::kInvalidArgument, "Range: the numbers from 'start' to 'limit' by 'delta' ",
              "are endless, or more than a 64-bit count can hold");
      shape[0] = size;
    });
  c.SetOutput(0, dtype, shape);
}

}  // namespace detail

class ConstantOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    CopyBytes(InferredOutput(0)->raw_mutable_data(), value_.raw_data(), value_.nbytes());
    return true;
  }

 private:
  const Tensor value_ = detail::ConstantValue(def().args());
};

class ConstantOfShapeOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    if (IsPacked(y->dtype())) {
      FillPacked(*y);
      return true;
    }
    copy_.Repeat(y->numel(), ItemSize(y->dtype()), value_.raw_data(), y->raw_mutable_data());
    return true;
  }

 private:
  void FillPacked(const Tensor& y) const {
    const int bits = BitSize(y.dtype());
    const uint8_t code = PackedCode(value_.raw_data(), bits, 0);
    uint8_t byte = 0;
    for (int i = 0; i < 8 / bits; ++i) SetPackedCode(&byte, bits, i, code);
    if (y.nbytes() > 0) std::memset(y.raw_mutable_data(), byte, static_cast<size_t>(y.nbytes()));
    detail::ClearUnusedBits(y.dtype(), y.numel(), y.raw_mutable_data());
  }

  const Tensor value_ = detail::FillElement(def().args());
  StridedCopy copy_;
};

class EyeLikeOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const int64_t rows = y->dim(0), columns = y->dim(1);
    if (y->nbytes() > 0) std::memset(y->raw_mutable_data(), 0, static_cast<size_t>(y->nbytes()));
    PlainTypes::Visit(y->dtype(), [&]<class T>() {
      T* out = y->mutable_data<T>();
      for (int64_t row = k_ < 0 ? (k_ < -rows ? rows : -k_) : 0; row < rows; ++row) {
        if (k_ >= columns - row) break;
        out[row * columns + row + k_] = T(1);
      }
    });
    return true;
  }

 private:
  const int64_t k_ = GetSingleArgument<int64_t>("k");
};

class RangeOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    detail::RangeTypes::Visit(y->dtype(), [&]<class T>() {
      const T start = detail::RangeNumber<T>(Input(0), "start");
      const T delta = detail::RangeNumber<T>(Input(2), "delta");
      T* out = y->mutable_data<T>();
      for (int64_t i = 0; i < y->numel(); ++i) out[i] = detail::RangeElement(start, delta, i);
    });
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(Constant, kNone, ConstantOp)
    .NumInputs(0)
    .Output(0, "output", "the value")
    .Arg<Tensor>("value", "a tensor")
    .Arg<int64_t>("value_int", "an int64 scalar")
    .Arg<std::vector<int64_t>>("value_ints", "a list of int64")
    .Arg<float>("value_float", "a float scalar")
    .Arg<std::vector<float>>("value_floats", "a list of float")
    .Infer([](InferenceContext& c) { c.SetOutputData(0, detail::ConstantValue(c.args())); })
    .Doc("A tensor that an attribute holds.");

OPKIT_STANDARD_OPERATOR(ConstantOfShape, kNone, ConstantOfShapeOp)
    .InputsOnHost({0})
    .Input(0, "input", "the extents", {DType::kInt64})
    .Output(0, "output", "of that shape")
    .Arg<Tensor>("value", "one element; by default a float 0")
    .Infer(detail::InferConstantOfShape)
    .Doc("A tensor of equal elements.");

OPKIT_STANDARD_OPERATOR(EyeLike, kNone, EyeLikeOp)
    .InputsCanCrossDevices()
    .Input(0, "input", "a matrix; only its shape and type are read", PlainTypes::DTypes())
    .Output(0, "output", "of the shape of the input", PlainTypes::DTypes())
    .Arg<int64_t>("dtype",
                  "the output's type, as a number of ONNX's enumeration TensorProto.DataType; by "
                  "default the input's type")
    .Arg<int64_t>("k", "the diagonal: 0 is the main one, positive ones lie above it", 0)
    .Infer([](InferenceContext& c) {
      DType dtype = c.input_dtype(0);
      if (c.args().Has("dtype")) {
        const auto number = c.Arg<int64_t>("dtype");
        dtype = OnnxDType(number);
        if (!PlainTypes::Has(dtype))
          Throw(ErrorCode::kUnsupported, "EyeLike: dtype=", number, " is not the number of one of ",
                PlainTypes::DTypes());
      }
      const SymbolicShape& shape = c.input_shape(0);
      if (shape.has_rank() && shape.rank() != 2)
        Throw(ErrorCode::kInvalidArgument, "EyeLike: the input has shape ", ToString(shape),
              ", expected rank 2");
      c.SetOutput(0, dtype, shape);
    })
    .Doc("A matrix of ones on a diagonal and zeros elsewhere.");

OPKIT_STANDARD_OPERATOR(Range, kNone, RangeOp)
    .NumInputs(3)
    .InputsOnHost({0, 1, 2})
    .Input(0, "start", "the first number, a scalar", detail::RangeTypes::DTypes())
    .Input(1, "limit", "the numbers stop before it")
    .Input(2, "delta", "from one to the next; may be negative")
    .Output(0, "output", "start, start + delta, …: ceil((limit - start) / delta) of them")
    .Infer(detail::InferRange)
    .PointwiseCost(2)
    .Doc("Numbers in equal steps.");

}}  // namespace opkit

#endif  // OPKIT_OPS_GENERATORS_HPP_

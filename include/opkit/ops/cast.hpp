// Cast and CastLike: convert the elements of a tensor to another type. Source:
// https://onnx.ai/onnx/operators/onnx__Cast.html and onnx__CastLike.html, opset 25.
#ifndef OPKIT_OPS_CAST_HPP_
#define OPKIT_OPS_CAST_HPP_

#include "opkit/graph/passes/half_precision.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/small_numbers.hpp"
#include "opkit/ops/text/string_numbers.hpp"

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

// Converts to float so that rounding the float to a float8 gives the same as rounding the element,
// and that the part before the point is the same.
template <class From>
void RunToOddFloat(const ElementRun& run) {
  const auto* x = static_cast<const StoredType<From>*>(run.in[0]);
  auto* y = static_cast<float*>(run.out);
  for (int64_t i = 0; i < run.n; ++i)
    if constexpr (std::is_same_v<From, bool>)
      y[i] = x[i] != 0 ? 1.f : 0.f;
    else if constexpr (std::is_same_v<From, double>)
      y[i] = RoundToOdd(x[i]);
    else if constexpr (std::is_integral_v<From>)
      y[i] = RoundToOdd(
          static_cast<std::conditional_t<std::is_signed_v<From>, int64_t, uint64_t>>(x[i]));
    else
      y[i] = static_cast<float>(x[i]);
}

// Converts blocks of elements from or to a small dtype.
class SmallCast {
 public:
  SmallCast(DType from, DType to, const SmallRounding& rounding)
      : from_(from), to_(to), rounding_(rounding) {
    // A block of a small dtype is made int8 or float first, without a loss.
    const DType wide = !IsSmall(from)          ? from
                       : IsPackedInteger(from) ? DType::kInt8
                                               : DType::kFloat32;
    const bool is_whole = wide == DType::kBool || IsInteger(wide);
    keeps_low_bits_ = IsPackedInteger(to) && is_whole;
    if (!IsSmall(to))
      convert_ = CastKernel(wide, to);
    else if (keeps_low_bits_)
      convert_ = CastKernel(wide, DType::kInt8);
    else
      convert_ =
          PlainTypes::Find<ElementKernel>(wide, []<class From>() { return &RunToOddFloat<From>; });
  }
  bool exists() const { return static_cast<bool>(convert_); }

  // Converts elements [at, at + n), n at most kSmallBlock; `at` is a multiple of it.
  void Run(const void* x, void* y, int64_t at, int64_t n) const {
    alignas(8) char wide[kSmallBlock * sizeof(float)];
    float numbers[kSmallBlock];
    uint8_t codes[kSmallBlock];
    ElementRun run = {};
    run.n = n;
    if (!IsSmall(from_)) {
      run.in[0] = static_cast<const char*>(x) + at * ItemSize(from_);
    } else if (IsPackedInteger(from_)) {
      LoadSmall(from_, x, at, n, reinterpret_cast<int8_t*>(wide));
      run.in[0] = wide;
    } else {
      LoadSmall(from_, x, at, n, reinterpret_cast<float*>(wide));
      run.in[0] = wide;
    }
    if (!IsSmall(to_)) {
      run.out = static_cast<char*>(y) + at * ItemSize(to_);
      return convert_(run);
    }
    run.out = keeps_low_bits_ ? static_cast<void*>(codes) : numbers;
    convert_(run);
    if (!keeps_low_bits_) CodesOfNumbers(to_, numbers, n, codes, rounding_);
    StoreCodes(to_, codes, at, n, y);
  }

 private:
  DType from_, to_;
  SmallRounding rounding_;
  bool keeps_low_bits_ = false;
  ElementKernel convert_ = nullptr;
};
// Converts a tensor from or to a small dtype. `y` may be in the memory of `x` if their elements
// have the same size.
inline void CastSmall(std::string_view op, const Tensor& x, const Tensor& y,
                      const SmallRounding& rounding) {
  if (x.dtype() == y.dtype()) {  // also an infinity stays
    if (x.nbytes() > 0)
      std::memmove(y.raw_mutable_data(), x.raw_data(), static_cast<size_t>(x.nbytes()));
    return;
  }
  const SmallCast cast(x.dtype(), y.dtype(), rounding);
  if (!cast.exists())
    Throw(ErrorCode::kTypeMismatch, op, " does not convert ", x.dtype(), " to ", y.dtype());
  const int64_t blocks = (x.numel() + kSmallBlock - 1) / kSmallBlock;
  ParallelForRange(blocks, BroadcastLoop::kGrain / kSmallBlock, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * kSmallBlock; begin < end; ++begin, at += kSmallBlock)
      cast.Run(x.raw_data(), y.raw_mutable_data(), at, (std::min)(kSmallBlock, x.numel() - at));
  });
}
inline SmallRounding CastRounding(std::string_view op, const Arguments& args) {
  SmallRounding rounding;
  if (args.Get<int64_t>("saturate", 1) == 0) rounding.overflow = Overflow::kIsInfinite;
  rounding.power = EnumeratorOf<PowerRounding>(op, args, "round_mode");
  return rounding;
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
          " is a complex element type, which it does not convert to; expected one of ",
          WithStrings(WithSmallDTypes(PlainTypes::DTypes())));
  return dtype;
}

}  // namespace detail

class CastOp : public ElementwiseOperator {
 public:
  CastOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : ElementwiseOperator(def, ws, config),
        to_(detail::CastTarget(GetSingleArgument<int64_t>("to"))),
        rounding_(detail::CastRounding("Cast", this->def().args())) {}

  bool RunOnDevice() override {
    if (IsPlain(Input(0).dtype()) && IsPlain(to_)) [[likely]]
      return ElementwiseOperator::RunOnDevice();
    const Tensor& x = DenseInput(0);
    if (x.dtype() == DType::kString || to_ == DType::kString)
      detail::CastStrings(x, *InferredOutput(0));
    else
      detail::CastSmall("Cast", x, *InferredOutput(0), rounding_);
    return true;
  }

  // Proposes the output in place if the element sizes are equal. With different sizes, writes could
  // overwrite elements before they are read.
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    KernelConfig config;
    const int from = BitSize(query.inputs[0].dtype), to = BitSize(query.outputs[0].dtype);
    if (from == to && from > 0) config.inplace = {{0, 0}};
    return {config};
  }

 protected:
  DType to() const { return to_; }
  ElementKernel FindKernel() const override { return detail::CastKernel(Input(0).dtype(), to_); }

 private:
  const DType to_;
  const detail::SmallRounding rounding_;
};

OPKIT_STANDARD_OPERATOR(Cast, kMaker, CastOp)
    .Doc(
        "Converts elements to the type `to`. To bool: whether it is not 0. To an integer: from "
        "an integer the low bits, from a floating-point number the part before the point, the "
        "nearest integer there is for one outside, 0 for NaN. To a floating-point type: the "
        "nearest number, of two the even one, infinity beyond the largest. To a floating-point "
        "type "
        "of 8 bits: as `saturate` and `round_mode` say. To float4: the largest number beyond it, 0 "
        "for NaN. To float8_e8m0fnu: NaN for a negative number. To a string: the shortest text "
        "that reads back as the number, NaN, INF or -INF; from a string: the number that it "
        "spells.")
    .Input(0, "input", "a tensor of any shape", WithStrings(WithSmallDTypes(PlainTypes::DTypes())))
    .Output(0, "output", "of the same shape", WithStrings(WithSmallDTypes(PlainTypes::DTypes())))
    .RequiredArg<int64_t>("to", "the type's number in ONNX's enumeration TensorProto.DataType")
    .Arg<int64_t>("saturate",
                  "1: beyond the largest number of an 8-bit floating-point type lies the largest "
                  "one; 0: infinity, or NaN in a type without it",
                  1)
    .Arg("round_mode",
         "how a number between two powers of two becomes a float8_e8m0fnu; nearest: of two the "
         "larger one",
         {"up", "down", "nearest"})
    .PointwiseCost(1)
    .Infer([](InferenceContext& c) {
      const DType to = detail::CastTarget(c.Arg<int64_t>("to"));
      c.SetOutput(0, to, c.input_shape(0));
      c.SetInput(0, DType::kUndefined, c.output(0).shape);
    });

namespace detail {

// An integer has no gradient, nor has a number that it is converted from.
OPKIT_NODE_GRADIENT(Cast) {
  if (IsFloatingPoint(CastTarget(Def().args().Get<int64_t>("to"))))
    Give(0, "CastLike", {GO(0), I(0)});
}
OPKIT_NODE_GRADIENT(CastLike) { Give(0, "CastLike", {GO(0), I(0)}); }

}  // namespace detail

// Converts as Cast does, to the type of another tensor, whose shape does not matter.
class CastLikeOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (x.dtype() == DType::kString || y->dtype() == DType::kString)
      return detail::CastStrings(x, *y), true;
    if (detail::IsSmall(x.dtype()) || detail::IsSmall(y->dtype())) {
      detail::CastSmall("CastLike", x, *y, detail::CastRounding("CastLike", def().args()));
      return true;
    }
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
    .Input(0, "input", "a tensor of any shape", WithStrings(WithSmallDTypes(PlainTypes::DTypes())))
    .Input(1, "target_type", "a tensor of any shape; only its type is read",
           WithStrings(WithSmallDTypes(PlainTypes::DTypes())))
    .Output(0, "output", "of the shape of the input",
            WithStrings(WithSmallDTypes(PlainTypes::DTypes())))
    .Arg<int64_t>("saturate",
                  "1: beyond the largest number of an 8-bit floating-point type lies the largest "
                  "one; 0: infinity, or NaN in a type without it",
                  1)
    .Arg("round_mode",
         "how a number between two powers of two becomes a float8_e8m0fnu; nearest: of two the "
         "larger one",
         {"up", "down", "nearest"})
    .PointwiseCost(1)
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, c.input_dtype(1), c.input_shape(0));
      c.SetInput(0, DType::kUndefined, c.output(0).shape);
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_CAST_HPP_

// ConvInteger and QLinearConv: convolutions of 8-bit integers, by ByteConvolution. Sources:
// https://onnx.ai/onnx/operators/onnx__ConvInteger.html and onnx__QLinearConv.html, opset 10.
#ifndef OPKIT_OPS_QUANTIZED_CONV_INTEGER_HPP_
#define OPKIT_OPS_QUANTIZED_CONV_INTEGER_HPP_

#include "opkit/ops/quantized/byte_convolution.hpp"
#include "opkit/ops/quantized/quantization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Throws kInvalidArgument if the rank of an input is known to be above 1.
inline void CheckNumberOrList(InferenceContext& c, int input, const char* what) {
  const SymbolicShape& shape = c.input_shape(input);
  if (shape.has_rank() && shape.rank() > 1)
    Throw(ErrorCode::kInvalidArgument, c.def().type(), ": the ", what, " in input ", input,
          " has shape ", ToString(shape), ", expected one number or a list");
}
// Checks the types of a convolution and returns its output's shape. x is input 0; its zero point
// has one element, that of w one, or one for each output channel.
inline SymbolicShape InferIntegerConv(InferenceContext& c, int x_zero, int w, int w_zero) {
  for (const auto& [input, zero] : {std::pair{0, x_zero}, std::pair{w, w_zero}}) {
    ExpectDType(c, input, ByteTypes::DTypes());
    if (!c.HasInput(zero)) continue;
    c.SetInput(zero, c.input_dtype(input), {});
    CheckNumberOrList(c, zero, "zero point");
  }
  return ConvOutputShape(c, w);
}
// Throws kInvalidArgument unless a list has one element or `channels` ones.
inline void CheckChannels(const OperatorBase& op, const char* what, size_t found,
                          int64_t channels) {
  if (found != 1 && static_cast<int64_t>(found) != channels)
    Throw(ErrorCode::kInvalidArgument, op.type(), ": ", what, " has ", found,
          " elements, expected one, or one for each of ", channels, " output channels");
}

}  // namespace detail

// The base of both operators. Keeps the runs of the last shapes, and from the first run on the
// packed kernels of a plan's constant; packs others in each run.
class IntegerConvOpBase : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  static constexpr const char* kConstantW = "constant W";
  static std::vector<KernelConfig> ProposeFor(const KernelQuery& query, size_t w) {
    return {detail::IntegerConfig(query.inputs[w].constant, kConstantW)};
  }

  // Calls store(const ConvSums&) for all output pixels. Zero points and the bias may be null.
  template <class F>
  void Convolve(const Tensor& x, const Tensor& w, const Tensor* x_zero, const Tensor* w_zero,
                const int32_t* bias, F&& store) {
    const ConvSizes sizes = ConvSizes::Of(attributes_, groups_, x.shape(), w.shape());
    const int64_t outputs = groups_ * sizes.outputs;
    std::vector<int32_t> x_zeros(1, 0), w_zeros(1, 0);
    if (x_zero) x_zeros = detail::ZeroPoints(*x_zero);
    if (w_zero) w_zeros = detail::ZeroPoints(*w_zero);
    detail::CheckChannels(*this, "the zero point of x", x_zeros.size(), 1);
    detail::CheckChannels(*this, "the zero point of w", w_zeros.size(), outputs);
    const bool x_signed = x.dtype() == DType::kInt8, w_signed = w.dtype() == DType::kInt8;
    const auto* kernels = static_cast<const uint8_t*>(w.raw_data());
    if (x.shape() != x_shape_ || w.shape() != w_shape_) {
      windows_.Set(sizes);
      x_shape_ = x.shape();
      w_shape_ = w.shape();
      is_packed_ = false;
    }
    if (!keeps_ || !is_packed_) {
      detail::ByteConvolution::Pack(sizes, windows_, kernels, outputs, w_signed, packed_);
      is_packed_ = true;
    }
    const detail::ByteConvolution convolution{sizes,
                                              windows_,
                                              packed_,
                                              static_cast<const uint8_t*>(x.raw_data()),
                                              groups_,
                                              x_zeros[0],
                                              {w_zeros.data(), w_zeros.size() > 1},
                                              x_signed,
                                              w_signed,
                                              bias,
                                              numbers_};
    convolution.Run(store, loops_);
  }

  const detail::IntegerLoops loops_ = detail::AllIntegerLoops()[0];

 private:
  const WindowAttributes attributes_{def()};
  const int64_t groups_ = detail::ConvGroups(def());
  Shape x_shape_, w_shape_;
  detail::ConvWindows windows_;
  std::vector<uint32_t> numbers_;
  const bool keeps_ = config() && config()->variant.ends_with(kConstantW);
  bool is_packed_ = false;
  detail::PackedRows packed_;  // a row for each output channel
};

class ConvIntegerOp final : public IntegerConvOpBase {
 public:
  using IntegerConvOpBase::IntegerConvOpBase;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    return ProposeFor(query, 1);
  }
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    auto* out = y->mutable_data<int32_t>();
    const int64_t pixels = y->numel() / (y->dim(0) * y->dim(1));
    Convolve(DenseInput(0), DenseInput(1), HasInput(2) ? &DenseInput(2) : nullptr,
             HasInput(3) ? &DenseInput(3) : nullptr, nullptr, [=](const detail::ConvSums& all) {
               all.ForRuns([&](int64_t plane, const detail::PixelRun& run, int64_t at) {
                 std::memcpy(out + plane * pixels + run.pixel, all.sums + at,
                             static_cast<size_t>(run.count) * sizeof(int32_t));
               });
             });
    return true;
  }
};

// y = saturate(round((sum + B) * x_scale * w_scale / y_scale) + y_zero_point).
class QLinearConvOp final : public IntegerConvOpBase {
 public:
  using IntegerConvOpBase::IntegerConvOpBase;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    return ProposeFor(query, 3);
  }
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const int64_t channels = y->dim(1);
    const float x_scale = detail::ScalarScale(Input(1), "QLinearConv: x_scale");
    const float y_scale = detail::ScalarScale(Input(6), "QLinearConv: y_scale");
    std::vector<float> factors = detail::NumbersOf<float>(Input(4));
    const std::vector<int32_t> zeros = detail::ZeroPoints(Input(7));
    detail::CheckChannels(*this, "w_scale", factors.size(), channels);
    detail::CheckChannels(*this, "y_zero_point", zeros.size(), 1);
    if (y->numel() == 0) return true;
    factors.resize(detail::Index(channels), factors[0]);
    for (float& factor : factors) factor = x_scale * factor / y_scale;
    const int32_t* bias = HasInput(8) ? DenseInput(8).data<int32_t>() : nullptr;
    const int64_t pixels = y->numel() / (y->dim(0) * channels);
    const float zero = static_cast<float>(zeros[0]);
    ByteTypes::Visit(y->dtype(), [&]<class T>() {
      auto* out = reinterpret_cast<uint8_t*>(y->template mutable_data<T>());
      Convolve(DenseInput(0), DenseInput(3), &DenseInput(2), &DenseInput(5), bias,
               [&](const detail::ConvSums& all) {
                 uint8_t bytes[detail::ConvSums::kMost * detail::kPanelColumns];
                 loops_.quantize({all.sums, all.rows, static_cast<int64_t>(all.panels.size()),
                                  all.panels[0].vectors, &factors[detail::Index(all.channel)], 1, 0,
                                  zero, (std::numeric_limits<T>::min)(),
                                  (std::numeric_limits<T>::max)(), bytes});
                 all.ForRuns([&](int64_t plane, const detail::PixelRun& run, int64_t at) {
                   detail::CopyBytes(bytes + at, run.count, out + plane * pixels + run.pixel);
                 });
               });
    });
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(ConvInteger, kNone, ConvIntegerOp)
    .Doc(
        "Convolution of 8-bit integers less their zero points, with the shapes and attributes of "
        "Conv. Sums are int32 and wrap around; pads add nothing. It has no gradient: its inputs "
        "are integers.")
    .NumInputs(2, 4)
    .Input(0, "x", "images [N, C, D1, ..., Dn], n at least 1", ByteTypes::DTypes())
    .Input(1, "w", "kernels [M, C / group, k1, ..., kn]", ByteTypes::DTypes())
    .Input(2, "x_zero_point", "one number, of the type of x; 0 by default", ByteTypes::DTypes())
    .Input(3, "w_zero_point",
           "one number, or one for each output channel [M], of the type of w; 0 by default",
           ByteTypes::DTypes())
    .Output(0, "y", "[N, M, ...], spatial extents as strides, dilations and pads make them",
            {DType::kInt32})
    .Arg<int64_t>("group", "groups that channels and kernels are divided into", 1)
    .Arg<std::vector<int64_t>>("kernel_shape", "k1, ..., kn; those of w where it is left out")
    .FillUsing([](OpSchema& schema) { FillWindowSchema(schema, kAutoPadDoc, kPadsDoc); })
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, DType::kInt32, detail::InferIntegerConv(c, 2, 1, 3));
    })
    .Cost([](auto&, auto& inputs, auto& outputs) {
      return WindowCost(detail::ConvFlops(inputs[1], outputs[0]), inputs, outputs, 1);
    });

OPKIT_STANDARD_OPERATOR(QLinearConv, kNone, QLinearConvOp)
    .Doc(StrCat("The quantised convolution of quantised images: y = saturate(round((sum + B) * "
                "x_scale * w_scale / y_scale) + y_zero_point), with sums in int32 as those of "
                "ConvInteger. The factor is computed in float32.",
                detail::kNoGradientOfRounding))
    .NumInputs(8, 9)
    .Input(0, "x", "images [N, C, D1, ..., Dn], n at least 1", ByteTypes::DTypes())
    .Input(1, "x_scale", "one number", {DType::kFloat32})
    .Input(2, "x_zero_point", "one number, of the type of x", ByteTypes::DTypes())
    .Input(3, "w", "kernels [M, C / group, k1, ..., kn]", ByteTypes::DTypes())
    .Input(4, "w_scale", "one number, or one for each output channel [M]", {DType::kFloat32})
    .Input(5, "w_zero_point", "as w_scale, of the type of w", ByteTypes::DTypes())
    .Input(6, "y_scale", "one number", {DType::kFloat32})
    .Input(7, "y_zero_point", "one number", ByteTypes::DTypes())
    .Input(8, "B", "optional: a bias for each output channel [M], of scale x_scale * w_scale",
           {DType::kInt32})
    .Output(0, "y", "[N, M, ...], of the type of y_zero_point", ByteTypes::DTypes())
    .Arg<int64_t>("group", "groups that channels and kernels are divided into", 1)
    .Arg<std::vector<int64_t>>("kernel_shape", "k1, ..., kn; those of w where it is left out")
    .FillUsing([](OpSchema& schema) { FillWindowSchema(schema, kAutoPadDoc, kPadsDoc); })
    .Infer([](InferenceContext& c) {
      const SymbolicShape y = detail::InferIntegerConv(c, 2, 3, 5);
      detail::CheckNumberOrList(c, 4, "scale");
      if (c.HasInput(8)) c.SetInput(8, DType::kInt32, y.has_rank() ? SymbolicShape{y[1]} : y);
      c.SetOutput(0, c.input_dtype(7), y);
    })
    .Cost([](auto&, auto& inputs, auto& outputs) {
      return WindowCost(detail::ConvFlops(inputs[3], outputs[0]), inputs, outputs, 3);
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_QUANTIZED_CONV_INTEGER_HPP_

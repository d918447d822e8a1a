// DynamicQuantizeLinear: quantises a tensor to uint8 by a scale and zero point of its own numbers.
// Source: https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html, opset 11.
#ifndef OPKIT_OPS_QUANTIZED_DYNAMIC_QUANTIZE_LINEAR_HPP_
#define OPKIT_OPS_QUANTIZED_DYNAMIC_QUANTIZE_LINEAR_HPP_

#include "opkit/ops/quantized/quantize_loops.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The scale and zero point with which uint8 covers an interval of numbers.
struct DynamicScale {
  float scale = 1;
  uint8_t zero_point = 0;

  // The scale is 1 without an interval, as in ONNX Runtime.
  OPKIT_HOST_DEVICE static DynamicScale Covering(const FloatLimits& all) {
    DynamicScale out;
    if (all.low != all.high) out.scale = (all.high - all.low) / 255;
    out.zero_point = Quantize<uint8_t>(-all.low / out.scale, 0);
    return out;
  }
  // Covers the elements of x and 0. NaN is passed over.
  static DynamicScale Of(const float* x, int64_t n) {
    constexpr int64_t kGrain = 1 << 16;
    const int64_t parts = (n + kGrain - 1) / kGrain;
    const QuantizeLoops<uint8_t>& loops = BestQuantizeLoops<uint8_t>();
    FloatLimits all;
    if (parts == 1) {
      all = loops.limits(x, n);
    } else {
      std::vector<FloatLimits> limits(Index(parts));
      ParallelForRange(n, kGrain, [&](int64_t begin, int64_t end) {
        limits[Index(begin / kGrain)] = loops.limits(x + begin, end - begin);
      });
      for (const FloatLimits& part : limits) all.Add(part);
    }
    return Covering(all);
  }
  void Quantize8(const float* x, int64_t n, uint8_t* y) const {
    const ByteScales<uint8_t> by{&scale, &zero_point, 0, 0};
    ParallelForRange(n, int64_t{1} << 14, [&](int64_t begin, int64_t end) {
      BestQuantizeLoops<uint8_t>().quantize(x + begin, by, 1, end - begin, y + begin);
    });
  }
};

}  // namespace detail

class DynamicQuantizeLinearOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor *y = InferredOutput(0), *scale = InferredOutput(1), *zero_point = InferredOutput(2);
    const auto* from = x.data<float>();
    const auto found = detail::DynamicScale::Of(from, x.numel());
    found.Quantize8(from, x.numel(), y->mutable_data<uint8_t>());
    *scale->mutable_data<float>() = found.scale;
    *zero_point->mutable_data<uint8_t>() = found.zero_point;
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(DynamicQuantizeLinear, kNone, DynamicQuantizeLinearOp)
    .Doc(StrCat("Quantises x to uint8, with a scale and zero point that cover 0 and all elements "
                "of x: y_scale = (max(x, 0) - min(x, 0)) / 255, or 1 if that is 0; y_zero_point = "
                "round(-min(x, 0) / y_scale); y = saturate(round(x / y_scale) + y_zero_point).",
                detail::kNoGradientOfRounding))
    .NumOutputs(3)
    .Input(0, "x", "a tensor of any shape", {DType::kFloat32})
    .Output(0, "y", "of the shape of x", {DType::kUInt8})
    .Output(1, "y_scale", "a scalar", {DType::kFloat32})
    .Output(2, "y_zero_point", "a scalar", {DType::kUInt8})
    .PointwiseCost(5)
    .Infer([](InferenceContext& c) {
      ExpectDType(c, 0, {DType::kFloat32});
      c.SetOutput(0, DType::kUInt8, c.input_shape(0));
      c.SetOutput(1, DType::kFloat32, Shape());
      c.SetOutput(2, DType::kUInt8, Shape());
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_QUANTIZED_DYNAMIC_QUANTIZE_LINEAR_HPP_

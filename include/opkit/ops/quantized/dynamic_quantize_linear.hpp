// DynamicQuantizeLinear: quantises a tensor to uint8 by a scale and zero point of its own numbers.
// Source: https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html, opset 11.
#ifndef OPKIT_OPS_QUANTIZED_DYNAMIC_QUANTIZE_LINEAR_HPP_
#define OPKIT_OPS_QUANTIZED_DYNAMIC_QUANTIZE_LINEAR_HPP_

#include "opkit/ops/quantized/quantization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The scale and zero point with which uint8 covers an interval of numbers.
struct DynamicScale {
  float scale = 1;
  uint8_t zero_point = 0;

  // Covers the elements of x and 0. The scale is 1 if all elements are 0, as in ONNX Runtime. NaN
  // is passed over.
  static DynamicScale Of(const float* x, int64_t n) {
    constexpr int64_t kGrain = 1 << 16;
    const int64_t parts = (n + kGrain - 1) / kGrain;
    std::vector<std::pair<float, float>> limits(static_cast<size_t>(parts));
    ParallelForRange(n, kGrain, [&](int64_t begin, int64_t end) {
      // Several minima at once, because a minimum waits for the one before.
      constexpr int64_t kLanes = 16;
      float least[kLanes] = {}, most[kLanes] = {};
      int64_t i = begin;
      for (; i + kLanes <= end; i += kLanes)
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const float number = x[i + lane];
          least[lane] = number < least[lane] ? number : least[lane];
          most[lane] = number > most[lane] ? number : most[lane];
        }
      for (; i < end; ++i) {
        least[0] = (std::min)(least[0], x[i]);
        most[0] = (std::max)(most[0], x[i]);
      }
      auto& [low, high] = limits[Index(begin / kGrain)];
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        low = (std::min)(low, least[lane]);
        high = (std::max)(high, most[lane]);
      }
    });
    float low = 0, high = 0;
    for (const auto& [least, most] : limits) {
      low = (std::min)(low, least);
      high = (std::max)(high, most);
    }
    DynamicScale out;
    if (low != high) out.scale = (high - low) / 255;
    out.zero_point = Quantize<uint8_t>(-low / out.scale, 0);
    return out;
  }
  void Quantize8(const float* x, int64_t n, uint8_t* y) const {
    ParallelForRange(n, int64_t{1} << 14, [=, this](int64_t begin, int64_t end) {
      // Local variables, because bytes of y could be those of other ones, for all the compiler
      // knows.
      const float by = scale, zero = zero_point;
      const float* from = x;
      uint8_t* to = y;
      for (int64_t i = begin; i < end; ++i) to[i] = Quantize<uint8_t>(from[i] / by, zero);
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

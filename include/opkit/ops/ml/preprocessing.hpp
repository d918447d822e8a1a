// Normalizer, Scaler and Binarizer: numbers made ready for a model. Sources:
// https://onnx.ai/onnx/operators/onnx_aionnxml_Normalizer.html, onnx_aionnxml_Scaler.html,
// onnx_aionnxml_Binarizer.html.
#ifndef OPKIT_OPS_ML_PREPROCESSING_HPP_
#define OPKIT_OPS_ML_PREPROCESSING_HPP_

#include "opkit/ops/ml/ml_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// MAX divides by the greatest element, not by the greatest magnitude, as ONNX's page says.
class NormalizerOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    const int64_t columns = x.rank() == 0 ? 1 : x.dim(-1);
    if (x.numel() == 0) return true;
    float* out = y->mutable_data<float>();
    return Visit<MlTypes>([&]<class T>() {
      const T* in = x.data<T>();
      ParallelFor(x.numel() / columns, [&](int64_t row) {
        NormalizeRow(in + row * columns, out + row * columns, columns);
      });
    });
  }

 private:
  enum class Norm { kMax, kL1, kL2 };
  template <class T>
  void NormalizeRow(const T* x, float* y, int64_t columns) const {
    using Sum = std::conditional_t<std::is_same_v<T, float>, float, double>;
    Sum divisor = norm_ == Norm::kMax ? static_cast<Sum>(x[0]) : 0;
    for (int64_t i = 0; i < columns; ++i) {
      const Sum v = static_cast<Sum>(x[i]);
      if (norm_ == Norm::kMax)
        divisor = (std::max)(divisor, v);
      else
        divisor += norm_ == Norm::kL1 ? std::abs(v) : v * v;
    }
    if (norm_ == Norm::kL2) divisor = std::sqrt(divisor);
    if (divisor == 0) divisor = 1;
    for (int64_t i = 0; i < columns; ++i)
      y[i] = static_cast<float>(static_cast<Sum>(x[i]) / divisor);
  }

  const Norm norm_ = EnumeratorOf<Norm>(type(), def().args(), "norm");
};

class ScalerOp final : public StandardOperator {
 public:
  ScalerOp(const OperatorDef& def, Workspace* ws)
      : StandardOperator(def, ws),
        scale_(detail::FloatList(def.args(), "scale")),
        offset_(detail::FloatList(def.args(), "offset")) {
    if (scale_.empty() || scale_.size() != offset_.size())
      Throw(ErrorCode::kInvalidArgument, type(), ": 'scale' has ", scale_.size(),
            " elements and 'offset' ", offset_.size(),
            ", expected as many in both, and one or more");
  }
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    const auto size = static_cast<int64_t>(scale_.size());
    const int64_t columns = x.rank() == 0 ? 1 : x.dim(-1);
    if (size != 1 && size != columns)
      Throw(ErrorCode::kInvalidArgument, type(), ": the rows of ", ToString(x), " have ", columns,
            " columns, but 'scale' has ", size, " elements");
    float* out = y->mutable_data<float>();
    return Visit<MlTypes>([&]<class T>() {
      using Real = std::conditional_t<std::is_same_v<T, float>, float, double>;
      const std::vector<Real> scale(scale_.begin(), scale_.end()),
          offset(offset_.begin(), offset_.end());
      const T* in = x.data<T>();
      ParallelFor(x.numel(), [&](int64_t i) {
        const size_t k = size == 1 ? 0 : detail::Index(i % columns);
        out[i] = static_cast<float>((static_cast<Real>(in[i]) - offset[k]) * scale[k]);
      });
    });
  }

 private:
  const std::vector<double> scale_, offset_;
};

class BinarizerOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    return Visit<MlTypes>([&]<class T>() {
      const T* in = x.data<T>();
      T* out = y->mutable_data<T>();
      ParallelFor(x.numel(), [&](int64_t i) {
        out[i] = static_cast<T>(static_cast<double>(in[i]) > threshold_);
      });
    });
  }

 private:
  const double threshold_ = GetSingleArgument<double>("threshold");
};

namespace detail {

inline void InferFloatsOfInput(InferenceContext& c) {
  c.SetOutput(0, DType::kFloat32, c.input_shape(0));
}

}  // namespace detail

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", Normalizer, kNotImplemented, NormalizerOp)
    .Doc(
        "Each row, along the last axis, divided by its greatest element (MAX), by the sum of its "
        "magnitudes (L1), or by the root of the sum of its squares (L2). A row whose divisor is 0 "
        "stays.")
    .Input(0, "X", "a tensor", MlTypes::DTypes())
    .Output(0, "Y", "of X's shape", {DType::kFloat32})
    .Arg("norm", "the divisor", {"MAX", "L1", "L2"})
    .Infer(&detail::InferFloatsOfInput);

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", Scaler, kNotImplemented, ScalerOp)
    .Doc("(X - offset) * scale, by column.")
    .Input(0, "X", "a tensor whose last axis are the columns", MlTypes::DTypes())
    .Output(0, "Y", "of X's shape", {DType::kFloat32})
    .RequiredArg<std::vector<double>>("scale", "one number, or one for each column")
    .RequiredArg<std::vector<double>>("offset", "as many numbers as 'scale'")
    .Infer(&detail::InferFloatsOfInput);

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", Binarizer, kNone, BinarizerOp)
    .Doc("1 for each element above the threshold, and 0 for the others.")
    .Input(0, "X", "a tensor", MlTypes::DTypes())
    .Output(0, "Y", "of X's shape and dtype")
    .Arg<double>("threshold", "the limit", 0.0)
    .IdenticalTypeAndShape();

}}  // namespace opkit

#endif  // OPKIT_OPS_ML_PREPROCESSING_HPP_

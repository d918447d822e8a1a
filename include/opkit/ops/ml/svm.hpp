// SVMRegressor: a weighted sum of kernel functions of a row and the support vectors. Sources:
// https://onnx.ai/onnx/operators/onnx_aionnxml_SVMRegressor.html; C.-C. Chang and C.-J. Lin, 2011,
// "LIBSVM: a library for support vector machines", for the kernel functions.
#ifndef OPKIT_OPS_ML_SVM_HPP_
#define OPKIT_OPS_ML_SVM_HPP_

#include "opkit/ops/ml/ml_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Without support vectors the coefficients are those of the columns.
class SVMRegressorOp final : public StandardOperator {
 public:
  SVMRegressorOp(const OperatorDef& def, Workspace* ws)
      : StandardOperator(def, ws),
        vectors_(detail::FloatList(def.args(), "support_vectors")),
        coefficients_(detail::FloatList(def.args(), "coefficients")) {
    const std::vector<double> parameters = detail::FloatList(def.args(), "kernel_params"),
                              rho = detail::FloatList(def.args(), "rho");
    if (rho.size() > 1)
      Throw(ErrorCode::kInvalidArgument, type(), ": 'rho' has ", rho.size(),
            " elements, expected one");
    if (!rho.empty()) rho_ = rho[0];
    if (!parameters.empty() && parameters.size() != 3)
      Throw(ErrorCode::kInvalidArgument, type(), ": 'kernel_params' has ", parameters.size(),
            " elements, expected gamma, coef0 and degree");
    if (!parameters.empty())
      gamma_ = parameters[0], coef0_ = parameters[1], degree_ = parameters[2];
    const int64_t count = num_supports_ > 0 ? num_supports_ : 1;
    const std::vector<double>& rows = num_supports_ > 0 ? vectors_ : coefficients_;
    if (num_supports_ < 0 || rows.size() % detail::Index(count) != 0 ||
        (num_supports_ > 0 && coefficients_.size() != detail::Index(count)))
      Throw(ErrorCode::kInvalidArgument, type(), ": 'n_supports' is ", num_supports_,
            ", but there are ", coefficients_.size(), " coefficients and ", vectors_.size(),
            " numbers in 'support_vectors'");
    columns_ = static_cast<int64_t>(rows.size()) / count;
  }
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    float* out = InferredOutput(0)->mutable_data<float>();
    const int64_t columns = x.rank() == 0 ? 0 : x.dim(-1);
    if (columns != columns_)
      Throw(ErrorCode::kInvalidArgument, type(), ": the rows of ", ToString(x), " have ", columns,
            " columns, but the support vectors ", columns_);
    return Visit<MlTypes>([&]<class T>() {
      const T* data = x.data<T>();
      ParallelFor(detail::NumRows(x), [&](int64_t row) {
        double score = Score(data + row * columns);
        if (one_class_)
          score = score > 0 ? 1 : -1;
        else
          detail::TransformScores(transform_, &score, 1);
        out[row] = static_cast<float>(score);
      });
    });
  }

 private:
  enum class KernelType { kLinear, kPoly, kRbf, kSigmoid };

  template <class T>
  double Score(const T* x) const {
    if (num_supports_ == 0) return Dot(x, coefficients_.data()) + rho_;
    double sum = rho_;
    for (int64_t i = 0; i < num_supports_; ++i)
      sum += coefficients_[detail::Index(i)] * KernelOf(x, vectors_.data() + i * columns_);
    return sum;
  }
  template <class T>
  double KernelOf(const T* x, const double* vector) const {
    switch (kernel_) {
      case KernelType::kLinear:
        break;
      case KernelType::kPoly:
        return std::pow(gamma_ * Dot(x, vector) + coef0_, degree_);
      case KernelType::kSigmoid:
        return std::tanh(gamma_ * Dot(x, vector) + coef0_);
      case KernelType::kRbf: {
        double distance = 0;
        for (int64_t k = 0; k < columns_; ++k) {
          const double d = static_cast<double>(x[k]) - vector[k];
          distance += d * d;
        }
        return std::exp(-gamma_ * distance);
      }
    }
    return Dot(x, vector);
  }
  template <class T>
  double Dot(const T* x, const double* y) const {
    double sum = 0;
    for (int64_t k = 0; k < columns_; ++k) sum += static_cast<double>(x[k]) * y[k];
    return sum;
  }

  const std::vector<double> vectors_, coefficients_;
  const int64_t num_supports_ = GetSingleArgument<int64_t>("n_supports");
  const bool one_class_ = GetSingleArgument<int64_t>("one_class") != 0;
  const KernelType kernel_ = EnumeratorOf<KernelType>(type(), def().args(), "kernel_type");
  const PostTransform transform_ =
      EnumeratorOf<PostTransform>(type(), def().args(), "post_transform");
  double rho_ = 0, gamma_ = 0, coef0_ = 0, degree_ = 0;
  int64_t columns_ = 0;
};

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", SVMRegressor, kNotImplemented, SVMRegressorOp)
    .Doc(
        "The value of each row: 'rho' and the sum of the coefficients times the kernel function of "
        "the row and a support vector. With 'one_class' 1 if it is above 0, and -1 otherwise.")
    .Input(0, "X", "rows, of shape [N, F] or [F]", MlTypes::DTypes())
    .Output(0, "Y", "the values, of shape [N, 1]", {DType::kFloat32})
    .Arg<std::vector<double>>("support_vectors", "vector by vector, F numbers each")
    .RequiredArg<std::vector<double>>(
        "coefficients", "one for each support vector; without support vectors, for each column")
    .Arg<int64_t>("n_supports", "the number of support vectors", 0)
    .Arg<std::vector<double>>("rho", "one number, which is added; 0 by default")
    .Arg("kernel_type",
         "x*y; (gamma x*y + coef0)^degree; exp(-gamma |x-y|^2); tanh(gamma x*y + coef0), x*y being "
         "the sum of products",
         {"LINEAR", "POLY", "RBF", "SIGMOID"})
    .Arg<std::vector<double>>("kernel_params", "gamma, coef0 and degree; 0 by default")
    .Arg<int64_t>("one_class", "1: the sign of the value", 0)
    .Arg("post_transform", "how values are transformed", detail::kPostTransforms)
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, DType::kFloat32, SymbolicShape({detail::RowsOf(c).count, Dim(1)}));
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_ML_SVM_HPP_

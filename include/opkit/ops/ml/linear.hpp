// LinearClassifier and LinearRegressor: scores that are linear in the columns of a row. Sources:
// https://onnx.ai/onnx/operators/onnx_aionnxml_LinearClassifier.html,
// onnx_aionnxml_LinearRegressor.html.
#ifndef OPKIT_OPS_ML_LINEAR_HPP_
#define OPKIT_OPS_ML_LINEAR_HPP_

#include "opkit/ops/ml/ml_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The base of both operators. Adds in float for float32 rows, otherwise in double.
class LinearOperator : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  // Reads the coefficients of `count` scores, [count, F].
  void ReadCoefficients(int64_t count) {
    coefficients_ = FloatList(def().args(), "coefficients");
    intercepts_ = FloatList(def().args(), "intercepts");
    count_ = count;
    if (count < 1 || coefficients_.empty() || coefficients_.size() % Index(count) != 0)
      Throw(ErrorCode::kInvalidArgument, type(), ": 'coefficients' has ", coefficients_.size(),
            " elements, expected as many for each of ", count, " scores");
    if (!intercepts_.empty() && intercepts_.size() != Index(count))
      Throw(ErrorCode::kInvalidArgument, type(), ": 'intercepts' has ", intercepts_.size(),
            " elements, expected one for each of ", count, " scores");
  }
  int64_t count() const { return count_; }
  size_t num_coefficients() const { return coefficients_.size(); }

  // Calls done(row, scores) for each row, on several threads; `scores` has room for one more score
  // than there are.
  template <class Done>
  void ForEachRow(Done&& done) {
    const Tensor& x = DenseInput(0);
    const int64_t columns = x.rank() == 0 ? 0 : x.dim(-1);
    if (columns * count_ != static_cast<int64_t>(coefficients_.size()))
      Throw(ErrorCode::kInvalidArgument, type(), ": the rows of ", ToString(x), " have ", columns,
            " columns, but there are coefficients for ",
            static_cast<int64_t>(coefficients_.size()) / count_);
    Visit<MlTypes>([&]<class T>() {
      using Sum = std::conditional_t<std::is_same_v<T, float>, float, double>;
      const std::vector<Sum> weights(coefficients_.begin(), coefficients_.end());
      const T* data = x.data<T>();
      ParallelForRange(NumRows(x), kAutoGrain, [&](int64_t begin, int64_t end) {
        std::vector<Sum> scores(Index(count_ + 1));
        for (int64_t row = begin; row < end; ++row) {
          const T* values = data + row * columns;
          for (int64_t i = 0; i < count_; ++i) {
            Sum sum = 0;
            for (int64_t k = 0; k < columns; ++k)
              sum += static_cast<Sum>(values[k]) * weights[Index(i * columns + k)];
            scores[Index(i)] =
                intercepts_.empty() ? sum : sum + static_cast<Sum>(intercepts_[Index(i)]);
          }
          done(row, scores.data());
        }
      });
    });
  }

  const PostTransform transform_ =
      EnumeratorOf<PostTransform>(type(), def().args(), "post_transform");

 private:
  std::vector<double> coefficients_, intercepts_;
  int64_t count_ = 0;
};

}  // namespace detail

// With two classes and the coefficients of one, the score s is that of the second class: the scores
// are 1 - s and s (with LOGISTIC logistic(-s) and logistic(s)), and the second class is returned
// for s above 0. Otherwise the first of the classes with the highest score is returned.
class LinearClassifierOp final : public detail::LinearOperator {
 public:
  LinearClassifierOp(const OperatorDef& def, Workspace* ws)
      : LinearOperator(def, ws), labels_(def, "classlabels_ints") {
    const size_t intercepts = detail::FloatList(def.args(), "intercepts").size();
    is_binary_ = num_classes_ == 2 && intercepts == 1;
    ReadCoefficients(is_binary_ ? 1 : num_classes_);
  }
  bool RunOnDevice() override {
    void* labels = nullptr;
    float* out = nullptr;
    if (HasOutput(0)) labels = InferredOutput(0)->raw_mutable_data();
    if (HasOutput(1)) out = InferredOutput(1)->mutable_data<float>();
    ForEachRow([&](int64_t row, auto* scores) {
      const int64_t winner = Classify(scores);
      if (labels) labels_.Write(labels, row, winner);
      for (int64_t i = 0; out && i < num_classes_; ++i)
        out[row * num_classes_ + i] = static_cast<float>(scores[i]);
    });
    return true;
  }

 private:
  template <class T>
  int64_t Classify(T* scores) const {
    if (!is_binary_) {
      const int64_t best = std::max_element(scores, scores + num_classes_) - scores;
      detail::TransformScores(transform_, scores, num_classes_);
      return best;
    }
    const T s = scores[0];
    const bool logistic = transform_ == PostTransform::kLogistic;
    scores[0] = logistic ? -s : 1 - s;
    scores[1] = s;
    if (logistic || transform_ == PostTransform::kProbit)
      detail::TransformScores(transform_, scores, 2);
    return s > 0;
  }

  const detail::ClassLabels labels_;
  const int64_t num_classes_ = labels_.size();
  bool is_binary_ = false;
};

class LinearRegressorOp final : public detail::LinearOperator {
 public:
  LinearRegressorOp(const OperatorDef& def, Workspace* ws) : LinearOperator(def, ws) {
    ReadCoefficients(GetSingleArgument<int64_t>("targets"));
  }
  bool RunOnDevice() override {
    float* out = InferredOutput(0)->mutable_data<float>();
    ForEachRow([&](int64_t row, auto* scores) {
      detail::TransformScores(transform_, scores, count());
      for (int64_t i = 0; i < count(); ++i) out[row * count() + i] = static_cast<float>(scores[i]);
    });
    return true;
  }
};

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", LinearClassifier, kNotImplemented, LinearClassifierOp)
    .Doc(
        "The class of each row by linear scores, and the scores of all classes. If there are two "
        "classes and the coefficients of one, these give the score s of the second: the scores are "
        "1 - s and s, and the second class is returned for s above 0.")
    .NumOutputs(2)
    .Input(0, "X", "rows, of shape [N, F] or [F]", MlTypes::DTypes())
    .Output(0, "Y", "the label of the class of each row, of shape [N]",
            {DType::kInt64, DType::kString})
    .Output(1, "Z", "the scores, of shape [N, number of classes]", {DType::kFloat32})
    .RequiredArg<std::vector<double>>("coefficients", "the weights of the columns, class by class")
    .Arg<std::vector<double>>("intercepts", "for each class: added to the score")
    .Arg<std::vector<int64_t>>("classlabels_ints", "the labels of the classes")
    .Arg<std::vector<std::string>>("classlabels_strings", "the labels as strings")
    .Arg<int64_t>("multi_class", "not used: 0 for one class against the others, 1 for multinomial",
                  0)
    .Arg("post_transform", "how scores are transformed", detail::kPostTransforms)
    .Infer([](InferenceContext& c) { detail::InferClassifier(c, "classlabels_ints"); });

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", LinearRegressor, kNotImplemented, LinearRegressorOp)
    .Doc("For each target of a row the sum of the columns times the target's coefficients.")
    .Input(0, "X", "rows, of shape [N, F] or [F]", MlTypes::DTypes())
    .Output(0, "Y", "the values, of shape [N, targets]", {DType::kFloat32})
    .RequiredArg<std::vector<double>>("coefficients",
                                      "the weights of the columns, target by target")
    .Arg<std::vector<double>>("intercepts", "for each target: added to the value")
    .Arg<int64_t>("targets", "the number of values", 1)
    .Arg("post_transform", "how values are transformed", detail::kPostTransforms)
    .Infer([](InferenceContext& c) {
      const auto targets = c.Arg<int64_t>("targets");
      c.SetOutput(0, DType::kFloat32, SymbolicShape({detail::RowsOf(c).count, Dim(targets)}));
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_ML_LINEAR_HPP_

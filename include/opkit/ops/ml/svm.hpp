// SVMRegressor and SVMClassifier: weighted sums of kernel functions of a row and the support
// vectors. Sources: https://onnx.ai/onnx/operators/onnx_aionnxml_SVMRegressor.html and
// onnx_aionnxml_SVMClassifier.html; C.-C. Chang and C.-J. Lin, 2011, "LIBSVM: a library for support
// vector machines", for the kernel functions and the probabilities.
#ifndef OPKIT_OPS_ML_SVM_HPP_
#define OPKIT_OPS_ML_SVM_HPP_

#include "opkit/ops/ml/ml_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// The base of both operators: the support vectors and the kernel function.
class SvmOperator : public StandardOperator {
 public:
  SvmOperator(const OperatorDef& def, Workspace* ws)
      : StandardOperator(def, ws),
        vectors_(FloatList(def.args(), "support_vectors")),
        coefficients_(FloatList(def.args(), "coefficients")) {
    const std::vector<double> parameters = FloatList(def.args(), "kernel_params");
    if (!parameters.empty() && parameters.size() != 3)
      Throw(ErrorCode::kInvalidArgument, type(), ": 'kernel_params' has ", parameters.size(),
            " elements, expected gamma, coef0 and degree");
    if (!parameters.empty())
      gamma_ = parameters[0], coef0_ = parameters[1], degree_ = parameters[2];
  }

 protected:
  // Sets the columns of a row: the numbers of one of `count` support vectors or, without them, one
  // of `linear` lists of coefficients. Throws kInvalidArgument unless there are `each` coefficients
  // for each support vector.
  void ReadColumns(const char* attribute, int64_t count, int64_t each, int64_t linear) {
    const std::vector<double>& rows = count > 0 ? vectors_ : coefficients_;
    const size_t lists = Index(count > 0 ? count : linear);
    if (count < 0 || rows.size() % lists != 0 ||
        (count > 0 && coefficients_.size() != Index(count * each)))
      Throw(ErrorCode::kInvalidArgument, type(), ": '", attribute, "' is ", count,
            ", but there are ", coefficients_.size(), " coefficients and ", vectors_.size(),
            " numbers in 'support_vectors'");
    columns_ = static_cast<int64_t>(rows.size() / lists);
  }
  // Returns the input. Throws kInvalidArgument unless it has the columns.
  const Tensor& Rows() {
    const Tensor& x = DenseInput(0);
    const int64_t columns = x.rank() == 0 ? 0 : x.dim(-1);
    if (columns != columns_)
      Throw(ErrorCode::kInvalidArgument, type(), ": the rows of ", ToString(x), " have ", columns,
            " columns, but the support vectors ", columns_);
    return x;
  }

  // Returns the kernel function of a row and support vector i.
  template <class T>
  double KernelOf(const T* x, int64_t i) const {
    const double* vector = vectors_.data() + i * columns_;
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
  const std::vector<double>& coefficients() const { return coefficients_; }
  int64_t columns() const { return columns_; }

  const PostTransform transform_ =
      EnumeratorOf<PostTransform>(type(), def().args(), "post_transform");

 private:
  enum class KernelType { kLinear, kPoly, kRbf, kSigmoid };

  const std::vector<double> vectors_, coefficients_;
  const KernelType kernel_ = EnumeratorOf<KernelType>(type(), def().args(), "kernel_type");
  double gamma_ = 0, coef0_ = 0, degree_ = 0;
  int64_t columns_ = 0;
};

// Returns the number of support vectors of a classifier, 0 without them.
inline int64_t NumSupports(const OperatorDef& def, int64_t classes) {
  const std::vector<int64_t> counts = IntList(def.args(), "vectors_per_class");
  int64_t sum = 0;
  for (const int64_t count : counts) {
    if (count < 0 || count > INT32_MAX)
      Throw(ErrorCode::kInvalidArgument, def.type(), ": 'vectors_per_class' has the element ",
            count);
    sum += count;
  }
  if (sum > 0 && (classes < 2 || counts.size() != Index(classes)))
    Throw(ErrorCode::kInvalidArgument, def.type(), ": 'vectors_per_class' has ", counts.size(),
          " elements for ", classes, " classes, expected one for each of two classes or more");
  return sum;
}
// Returns the number of scores of a row.
inline int64_t NumSvmScores(const OperatorDef& def, int64_t classes) {
  const bool by_pairs = NumSupports(def, classes) > 0 && FloatList(def.args(), "prob_a").empty();
  return by_pairs && classes > 2 ? classes * (classes - 1) / 2 : classes;
}

// Makes probabilities p of k classes from those of pairs: r[i * k + j] is the probability of class
// i if the class is i or j. Source: T.-F. Wu, C.-J. Lin and R. C. Weng, 2004, "Probability
// estimates for multi-class classification by pairwise coupling", algorithm 2, with LIBSVM's end
// (section 8 of its paper): the largest difference is below 0.005 / k, or max(100, k) rounds are
// done.
inline void CouplePairs(const std::vector<double>& r, int64_t k, double* p) {
  const auto pair = [&](int64_t i, int64_t j) { return r[Index(i * k + j)]; };
  // Returns row i of the matrix Q of the paper times p.
  const auto product = [&](int64_t i) {
    double sum = 0;
    for (int64_t j = 0; j < k; ++j)
      if (j != i) sum += pair(j, i) * (pair(j, i) * p[i] - pair(i, j) * p[j]);
    return sum;
  };
  std::fill_n(p, k, 1.0 / static_cast<double>(k));
  std::vector<double> products(Index(k));
  for (int64_t round = 0; round < (std::max)(int64_t{100}, k); ++round) {
    double whole = 0, largest = 0;
    for (int64_t i = 0; i < k; ++i) whole += p[i] * (products[Index(i)] = product(i));
    for (const double each : products) largest = (std::max)(largest, std::abs(each - whole));
    if (largest < 0.005 / static_cast<double>(k)) return;
    for (int64_t i = 0; i < k; ++i) {
      double diagonal = 0, sum = 0;
      for (int64_t j = 0; j < k; ++j)
        if (j != i) diagonal += pair(j, i) * pair(j, i);
      whole = 0;
      for (int64_t j = 0; j < k; ++j) whole += p[j] * product(j);
      p[i] += (whole - product(i)) / diagonal;
      for (int64_t j = 0; j < k; ++j) sum += p[j];
      for (int64_t j = 0; j < k; ++j) p[j] /= sum;
    }
  }
}

}  // namespace detail

// Without support vectors the coefficients are those of the columns.
class SVMRegressorOp final : public detail::SvmOperator {
 public:
  SVMRegressorOp(const OperatorDef& def, Workspace* ws) : SvmOperator(def, ws) {
    const std::vector<double> rho = detail::FloatList(def.args(), "rho");
    if (rho.size() > 1)
      Throw(ErrorCode::kInvalidArgument, type(), ": 'rho' has ", rho.size(),
            " elements, expected one");
    if (!rho.empty()) rho_ = rho[0];
    ReadColumns("n_supports", num_supports_, 1, 1);
  }
  bool RunOnDevice() override {
    const Tensor& x = Rows();
    float* out = InferredOutput(0)->mutable_data<float>();
    return Visit<MlTypes>([&]<class T>() {
      const T* data = x.data<T>();
      ParallelFor(detail::NumRows(x), [&](int64_t row) {
        double score = Score(data + row * columns());
        if (one_class_)
          score = score > 0 ? 1 : -1;
        else
          detail::TransformScores(transform_, &score, 1);
        out[row] = static_cast<float>(score);
      });
    });
  }

 private:
  template <class T>
  double Score(const T* x) const {
    if (num_supports_ == 0) return Dot(x, coefficients().data()) + rho_;
    double sum = rho_;
    for (int64_t i = 0; i < num_supports_; ++i)
      sum += coefficients()[detail::Index(i)] * KernelOf(x, i);
    return sum;
  }

  const int64_t num_supports_ = GetSingleArgument<int64_t>("n_supports");
  const bool one_class_ = GetSingleArgument<int64_t>("one_class") != 0;
  double rho_ = 0;
};

// Each pair of classes i < j has a score, and votes for class i if it is above 0, otherwise for j.
// The first of the classes with the most votes is returned. The standard does not say how the
// scores are laid out: they are those of ONNX Runtime.
class SVMClassifierOp final : public detail::SvmOperator {
 public:
  SVMClassifierOp(const OperatorDef& def, Workspace* ws)
      : SvmOperator(def, ws),
        labels_(def, "classlabels_ints"),
        counts_(detail::IntList(def.args(), "vectors_per_class")),
        rho_(detail::FloatList(def.args(), "rho")),
        prob_a_(detail::FloatList(def.args(), "prob_a")),
        prob_b_(detail::FloatList(def.args(), "prob_b")) {
    ReadColumns("vectors_per_class", num_supports_, classes_ - 1, classes_);
    const int64_t pairs = classes_ * (classes_ - 1) / 2;
    const auto expect = [&](const char* name, const std::vector<double>& list) {
      if (static_cast<int64_t>(list.size()) != pairs)
        Throw(ErrorCode::kInvalidArgument, type(), ": '", name, "' has ", list.size(),
              " elements, expected one for each of ", pairs, " pairs of classes");
    };
    if (num_supports_ > 0) expect("rho", rho_);
    if (prob_a_.empty() && prob_b_.empty()) return;
    if (num_supports_ == 0)
      Throw(ErrorCode::kUnsupported, type(), " has 'prob_a' but no support vectors");
    expect("prob_a", prob_a_);
    expect("prob_b", prob_b_);
  }
  bool RunOnDevice() override {
    const Tensor& x = Rows();
    void* labels = nullptr;
    float* out = nullptr;
    if (HasOutput(0)) labels = InferredOutput(0)->raw_mutable_data();
    if (HasOutput(1)) out = InferredOutput(1)->mutable_data<float>();
    const int64_t width = detail::NumSvmScores(def(), classes_);
    return Visit<MlTypes>([&]<class T>() {
      const T* data = x.data<T>();
      ParallelForRange(detail::NumRows(x), kAutoGrain, [&](int64_t begin, int64_t end) {
        Scratch scratch(*this);
        for (int64_t row = begin; row < end; ++row) {
          const T* values = data + row * columns();
          const int64_t winner =
              num_supports_ > 0 ? Vote(values, scratch) : Linear(values, scratch);
          if (labels) labels_.Write(labels, row, winner);
          for (int64_t i = 0; out && i < width; ++i)
            out[row * width + i] = static_cast<float>(scratch.scores[detail::Index(i)]);
        }
      });
    });
  }

 private:
  // Room of one thread for the numbers of a row.
  struct Scratch {
    explicit Scratch(const SVMClassifierOp& op)
        : kernels(detail::Index(op.num_supports_)),
          scores(detail::Index((std::max)(op.classes_ * (op.classes_ - 1) / 2, op.classes_))),
          pairs(detail::Index(op.prob_a_.empty() ? 0 : op.classes_ * op.classes_)),
          votes(detail::Index(op.classes_)) {}
    std::vector<double> kernels, scores, pairs;
    std::vector<int64_t> votes;
  };

  // Computes the scores of a row, or the probabilities. Returns the winner.
  template <class T>
  int64_t Vote(const T* x, Scratch& scratch) const {
    for (int64_t v = 0; v < num_supports_; ++v) scratch.kernels[detail::Index(v)] = KernelOf(x, v);
    std::fill(scratch.votes.begin(), scratch.votes.end(), 0);
    size_t pair = 0;
    for (int64_t i = 0, first_i = 0; i < classes_; first_i += counts_[detail::Index(i++)])
      for (int64_t j = i + 1, first_j = first_i + counts_[detail::Index(i)]; j < classes_;
           first_j += counts_[detail::Index(j++)], ++pair) {
        const double score = rho_[pair] + Part(scratch, j - 1, first_i, counts_[detail::Index(i)]) +
                             Part(scratch, i, first_j, counts_[detail::Index(j)]);
        ++scratch.votes[detail::Index(score > 0 ? i : j)];
        scratch.scores[pair] = score;
        if (prob_a_.empty()) continue;
        constexpr double kLeast = 1e-7;
        const double p = (std::clamp)(detail::Logistic(-score * prob_a_[pair] - prob_b_[pair]),
                                      kLeast, 1 - kLeast);
        scratch.pairs[detail::Index(i * classes_ + j)] = p;
        scratch.pairs[detail::Index(j * classes_ + i)] = 1 - p;
      }
    if (!prob_a_.empty()) {
      detail::CouplePairs(scratch.pairs, classes_, scratch.scores.data());
      detail::TransformScores(transform_, scratch.scores.data(), classes_);
    } else if (classes_ == 2) {
      // The score of class 0 against class 1 becomes two numbers.
      const double s = scratch.scores[0];
      const bool mirrors =
          transform_ == PostTransform::kNone || transform_ == PostTransform::kLogistic;
      scratch.scores = {mirrors ? -s : 1 - s, s};
      if (mirrors || transform_ == PostTransform::kProbit)
        detail::TransformScores(transform_, scratch.scores.data(), 2);
    } else {
      detail::TransformScores(transform_, scratch.scores.data(), static_cast<int64_t>(pair));
    }
    return std::max_element(scratch.votes.begin(), scratch.votes.end()) - scratch.votes.begin();
  }
  // Sums `count` kernel functions from the first on, times the coefficients of a row of these.
  double Part(const Scratch& scratch, int64_t row, int64_t first, int64_t count) const {
    const double* weights = coefficients().data() + row * num_supports_;
    double sum = 0;
    for (int64_t v = first; v < first + count; ++v)
      sum += weights[v] * scratch.kernels[detail::Index(v)];
    return sum;
  }
  // The same without support vectors: a linear score for each class. Of two classes with one rho
  // the second is returned if the highest score is above 0, or 0.5 if no coefficient is negative.
  template <class T>
  int64_t Linear(const T* x, Scratch& scratch) const {
    std::vector<double>& scores = scratch.scores;
    const double rho = rho_.empty() ? 0 : rho_[0];
    for (int64_t i = 0; i < classes_; ++i)
      scores[detail::Index(i)] = Dot(x, coefficients().data() + i * columns()) + rho;
    const auto best = std::max_element(scores.begin(), scores.begin() + classes_);
    int64_t winner = best - scores.begin();
    if (classes_ == 2 && rho_.size() == 1 && (has_negative_ ? *best > 0 : *best >= 0.5)) winner = 1;
    detail::TransformScores(transform_, scores.data(), classes_);
    return winner;
  }

  const detail::ClassLabels labels_;
  const int64_t classes_ = labels_.size();
  const std::vector<int64_t> counts_;
  const std::vector<double> rho_, prob_a_, prob_b_;
  const int64_t num_supports_ = detail::NumSupports(def(), classes_);
  const bool has_negative_ =
      std::any_of(coefficients().begin(), coefficients().end(), [](double c) { return c < 0; });
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

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", SVMClassifier, kNotImplemented, SVMClassifierOp)
    .Doc(
        "The class of each row. Each pair of classes i < j has a score: an element of 'rho', the "
        "sum "
        "of the kernel functions of the row and class i's support vectors times row j - 1 of the "
        "coefficients, and the same with class j's and row i. It votes for i if it is above 0, "
        "otherwise for j. With 'prob_a' the scores become probabilities of classes: "
        "1 / (1 + exp(score prob_a + prob_b)) for pairs, which are coupled. Without it the score s "
        "of two classes becomes -s and s, and 1 - s and s if 'post_transform' is SOFTMAX, "
        "SOFTMAX_ZERO or PROBIT, of which only the last then transforms them.")
    .NumOutputs(2)
    .Input(0, "X", "rows, of shape [N, F] or [F]", MlTypes::DTypes())
    .Output(0, "Y", "the label of the class of each row, of shape [N]",
            {DType::kInt64, DType::kString})
    .Output(
        1, "Z",
        "the probabilities of the classes, or the scores of the pairs (0, 1), (0, 2), (1, 2) and "
        "so on; of shape [N, number of them]",
        {DType::kFloat32})
    .Arg<std::vector<double>>("support_vectors", "vector by vector, F numbers each, by class")
    .Arg<std::vector<int64_t>>("vectors_per_class", "for each class: its number of support vectors")
    .RequiredArg<std::vector<double>>(
        "coefficients",
        "a row less than there are classes, each with one for each support vector; without support "
        "vectors, class by class for each column, and 'rho' has one element")
    .Arg<std::vector<double>>("rho", "for each pair of classes: added to the score")
    .Arg<std::vector<double>>("prob_a", "for each pair of classes: the factor of its score")
    .Arg<std::vector<double>>("prob_b", "for each pair of classes: added to that")
    .Arg("kernel_type", "as SVMRegressor has it", {"LINEAR", "POLY", "RBF", "SIGMOID"})
    .Arg<std::vector<double>>("kernel_params", "gamma, coef0 and degree; 0 by default")
    .Arg<std::vector<int64_t>>("classlabels_ints", "the labels of the classes")
    .Arg<std::vector<std::string>>("classlabels_strings", "the labels as strings")
    .Arg("post_transform", "how scores are transformed", detail::kPostTransforms)
    .Infer([](InferenceContext& c) {
      const detail::ClassLabels labels(c.def(), "classlabels_ints");
      const Dim rows = detail::RowsOf(c).count,
                scores(detail::NumSvmScores(c.def(), labels.size()));
      c.SetOutput(0, labels.dtype(), SymbolicShape({rows}));
      c.SetOutput(1, DType::kFloat32, SymbolicShape({rows, scores}));
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_ML_SVM_HPP_

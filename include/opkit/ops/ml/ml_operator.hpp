// The parts that the operators of the domain ai.onnx.ml share: rows of an input, class labels, and
// the transforms of scores. Source: https://onnx.ai/onnx/operators/ (ai.onnx.ml).
#ifndef OPKIT_OPS_ML_ML_OPERATOR_HPP_
#define OPKIT_OPS_ML_ML_OPERATOR_HPP_

#include <algorithm>
#include <cmath>

#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The inputs of most operators of ai.onnx.ml.
using MlTypes = ElementTypes<float, double, int64_t, int32_t>;

// The transforms of scores, in the order of TreeEnsemble's numbers.
enum class PostTransform { kNone, kSoftmax, kLogistic, kSoftmaxZero, kProbit };

namespace detail {

inline constexpr std::initializer_list<const char*> kPostTransforms = {
    "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};

// Returns the numbers of a list attribute, or an empty list if the node does not give it.
inline std::vector<double> FloatList(const Arguments& args, std::string_view name) {
  return args.Get<std::vector<double>>(name, {});
}
inline std::vector<int64_t> IntList(const Arguments& args, std::string_view name) {
  return args.Get<std::vector<int64_t>>(name, {});
}

// Returns the number of class labels. Throws kInvalidArgument unless the node gives labels of one
// kind.
inline int64_t NumLabels(const OperatorDef& def, const char* integers) {
  const Attribute* numbers = def.args().Find(integers);
  const Attribute* strings = def.args().Find("classlabels_strings");
  const size_t n = numbers ? numbers->size() : 0, s = strings ? strings->size() : 0;
  if ((n == 0) == (s == 0))
    Throw(ErrorCode::kInvalidArgument, def.type(), " has ", n, " labels in '", integers, "' and ",
          s, " in 'classlabels_strings', expected labels in one of them");
  return static_cast<int64_t>(n + s);
}

// The labels of classes: integers, or the strings of 'classlabels_strings'.
class ClassLabels {
 public:
  // Throws kInvalidArgument unless the node gives labels of one kind.
  ClassLabels(const OperatorDef& def, const char* integers)
      : size_(NumLabels(def, integers)),
        numbers_(IntList(def.args(), integers)),
        strings_(def.args().Get<std::vector<std::string>>("classlabels_strings", {})) {}

  int64_t size() const { return size_; }
  DType dtype() const { return strings_.empty() ? DType::kInt64 : DType::kString; }
  // Writes the label of a class to element i of `out`, which is of dtype().
  void Write(void* out, int64_t i, int64_t label) const {
    if (strings_.empty())
      static_cast<int64_t*>(out)[i] = numbers_[Index(label)];
    else
      static_cast<std::string*>(out)[i] = strings_[Index(label)];
  }

 private:
  int64_t size_;
  std::vector<int64_t> numbers_;
  std::vector<std::string> strings_;
};

// An input of shape [N, F], or [F] for one row.
struct MlRows {
  Dim count = 1, width;  // N and F
};
inline MlRows RowsOf(const InferenceContext& c, int input = 0) {
  const SymbolicShape& shape = c.input_shape(input);
  if (!shape.has_rank()) return {Dim(), Dim()};
  if (shape.rank() != 1 && shape.rank() != 2)
    Throw(ErrorCode::kInvalidArgument, c.def().type(), ": input ", input, " has shape ",
          ToString(shape), ", expected [N, F] or [F]");
  if (shape.rank() == 1) return {1, shape[0]};
  return {shape[0], shape[1]};
}
inline int64_t NumRows(const Tensor& x) { return x.rank() == 1 ? 1 : x.dim(0); }

// Infers the outputs of a classifier: labels [N] and scores [N, number of labels].
inline void InferClassifier(InferenceContext& c, const char* integers) {
  const ClassLabels labels(c.def(), integers);
  const MlRows rows = RowsOf(c);
  c.SetOutput(0, labels.dtype(), SymbolicShape({rows.count}));
  c.SetOutput(1, DType::kFloat32, SymbolicShape({rows.count, Dim(labels.size())}));
}

template <class T>
T Logistic(T x) {
  // The exponential of a negative number does not overflow.
  const T e = std::exp(-std::abs(x));
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}
// Returns the quantile of the normal distribution, by the approximation of the inverse error
// function with which ONNX Runtime computes PROBIT (S. Winitzki, 2008, "A handy approximation for
// the error function and its inverse", a = 0.147). Its error is about 2e-3 at most.
template <class T>
T Probit(T p) {
  constexpr T kA = T(0.147), kPi = T(3.14159265358979323846), kRoot2 = T(1.41421356237309504880);
  const T x = 2 * p - 1, log = std::log((1 - x) * (1 + x));
  const T half = 2 / (kPi * kA) + log / 2;
  const T value = std::sqrt(std::sqrt(half * half - log / kA) - half);
  return kRoot2 * (x < 0 ? -value : value);
}

// Transforms the scores of one row in place.
template <class T>
void TransformScores(PostTransform transform, T* scores, int64_t count) {
  switch (transform) {
    case PostTransform::kNone:
      return;
    case PostTransform::kLogistic:
      for (int64_t i = 0; i < count; ++i) scores[i] = Logistic(scores[i]);
      return;
    case PostTransform::kProbit:
      for (int64_t i = 0; i < count; ++i) scores[i] = Probit(scores[i]);
      return;
    case PostTransform::kSoftmax:
    case PostTransform::kSoftmaxZero:
      break;
  }
  if (count == 0) return;
  const bool keeps_zeros = transform == PostTransform::kSoftmaxZero;
  const T largest = *std::max_element(scores, scores + count);
  T sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (keeps_zeros && scores[i] == 0) continue;
    scores[i] = std::exp(scores[i] - largest);
    sum += scores[i];
  }
  if (sum != 0)
    for (int64_t i = 0; i < count; ++i) scores[i] /= sum;
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OPS_ML_ML_OPERATOR_HPP_

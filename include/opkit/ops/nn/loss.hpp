// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss: how far predicted probabilities of classes
// are from the right classes. Source: the ONNX operator pages (https://onnx.ai/onnx/operators),
// opset 13.
#ifndef OPKIT_OPS_NN_LOSS_HPP_
#define OPKIT_OPS_NN_LOSS_HPP_

#include <cmath>
#include <limits>

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferLoss(InferenceContext& c) {
  const SymbolicShape &scores = c.input_shape(0), &labels = c.input_shape(1);
  const std::string op = c.def().type();
  if (scores.has_rank()) {
    if (scores.rank() < 2)
      Throw(ErrorCode::kInvalidArgument, op, ": input 0 has shape ", ToString(scores),
            ", expected [N, C] or [N, C, …]");
    std::vector<Dim> dims{scores[0]};
    dims.insert(dims.end(), scores.dims().begin() + 2, scores.dims().end());
    c.SetInput(1, DType::kUndefined, SymbolicShape(std::move(dims)));
    if (c.HasInput(2)) c.SetInput(2, c.input_dtype(0), {scores[1]});
  }
  const bool each = c.Arg<std::string>("reduction", "mean") == "none";
  c.SetOutput(0, c.input_dtype(0), each ? labels : SymbolicShape(Shape{}));
  if (c.num_outputs() > 1) c.SetOutput(1, c.input_dtype(0), scores);
}

}  // namespace detail

// Computes both losses in double. The cross entropy is the negative log likelihood of the logarithm
// of the softmax along axis 1.
class LossOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Infer();
    const Tensor &scores = DenseInput(0), &labels = DenseInput(1);
    FindClasses(labels, scores.dim(1));
    Tensor* loss = InferredOutput(0);
    Tensor* log = HasOutput(1) ? InferredOutput(1) : nullptr;
    return Visit<FloatTypes>([&]<class T>() {
      Compute(scores.data<T>(), AxisSplit(scores.shape(), 1),
              HasInput(2) ? DenseInput(2).data<T>() : nullptr, loss->mutable_data<T>(),
              log ? log->mutable_data<T>() : nullptr);
    });
  }

 private:
  enum class Reduction : uint8_t { kMean, kNone, kSum };

  // Writes the class of each row to classes_; -1 for one that is ignored. Throws kOutOfRange for a
  // label that is no class.
  void FindClasses(const Tensor& labels, int64_t count) {
    classes_ = IntegersOf(labels);
    for (int64_t& label : classes_)
      if (has_ignored_ && label == ignored_)
        label = -1;
      else if (label < 0 || label >= count)
        Throw(ErrorCode::kOutOfRange, type(), ": label ", label, " is none of ", count, " classes");
  }
  template <class T>
  void Compute(const T* x, const AxisSplit& split, const T* weights, T* loss, T* log) const {
    double sum = 0, total_weight = 0;
    for (int64_t row = 0; row < split.rows(); ++row) {
      const int64_t first = split.Begin(row);
      auto at = [&](int64_t c) { return static_cast<double>(x[first + c * split.inner]); };
      double scale = 0;  // the logarithm of the sum of all exponentials
      if (softmax_) {
        double largest = -std::numeric_limits<double>::infinity();
        for (int64_t c = 0; c < split.extent; ++c) largest = largest < at(c) ? at(c) : largest;
        for (int64_t c = 0; c < split.extent; ++c) scale += std::exp(at(c) - largest);
        scale = largest + std::log(scale);
        for (int64_t c = 0; c < split.extent && log; ++c)
          log[first + c * split.inner] = ConvertElement<T>(at(c) - scale);
      }
      const int64_t label = classes_[detail::Index(row)];
      const double weight = label < 0 ? 0 : weights ? static_cast<double>(weights[label]) : 1;
      const double value = label < 0 ? 0 : weight * (scale - at(label));
      if (reduction_ == Reduction::kNone) loss[row] = ConvertElement<T>(value);
      sum += value;
      total_weight += weight;
    }
    if (reduction_ == Reduction::kSum) *loss = ConvertElement<T>(sum);
    if (reduction_ == Reduction::kMean) *loss = ConvertElement<T>(sum / total_weight);
  }

  const bool softmax_ = type() == "SoftmaxCrossEntropyLoss";
  const Reduction reduction_ = EnumeratorOf<Reduction>(type(), def().args(), "reduction");
  const bool has_ignored_ = HasArgument("ignore_index");
  const int64_t ignored_ = GetSingleArgument<int64_t>("ignore_index", 0);
  std::vector<int64_t> classes_;
};

#define OPKIT_LOSS_OPERATOR(name, scores, labels, weights, loss, scores_doc)                  \
  OPKIT_STANDARD_OPERATOR(name, kNotImplemented, LossOp)                                      \
      .NumInputs(2, 3)                                                                        \
      .Input(0, scores, scores_doc, FloatTypes::DTypes())                                     \
      .Input(1, labels, "[N] or [N, …]: the number of the right class", IndexTypes::DTypes()) \
      .Input(2, weights, "[C]: the weight of each class; 1 where it is left out",             \
             FloatTypes::DTypes())                                                            \
      .Output(0, loss, "a scalar, or of the shape of input 1 with reduction=none",            \
              FloatTypes::DTypes())                                                           \
      .Arg<int64_t>("ignore_index", "a label that has the loss 0 and no weight in the mean")  \
      .Arg("reduction",                                                                       \
           "mean: divided by the sum of the weights; none: the loss of each label; "          \
           "sum: of all",                                                                     \
           {"mean", "none", "sum"})                                                           \
      .PointwiseCost(20)                                                                      \
      .Infer(detail::InferLoss)
OPKIT_LOSS_OPERATOR(NegativeLogLikelihoodLoss, "input", "target", "weight", "loss",
                    "[N, C] or [N, C, …]: the logarithms of the probabilities of C classes")
    .Doc("The weighted mean or sum of the negative logarithms of the right classes' probability.");
OPKIT_LOSS_OPERATOR(SoftmaxCrossEntropyLoss, "scores", "labels", "weights", "output",
                    "[N, C] or [N, C, …]: the scores of C classes")
    .NumOutputs(1, 2)
    .Output(1, "log_prob", "of the shape of the scores: the logarithm of their softmax",
            FloatTypes::DTypes())
    .Doc("NegativeLogLikelihoodLoss of the logarithm of the softmax of scores, along axis 1.");
#undef OPKIT_LOSS_OPERATOR

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_LOSS_HPP_

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
#include "opkit/ops/support/node_gradient.hpp"

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

// The gradient of both losses. That of the logarithm h of the softmax is g - e^h sum(g).
class LossGradient final : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;

 private:
  void Make() override {
    std::string scores;
    if (HasGO(0)) {
      Arguments args = Def().args();
      args.Set("softmax", int64_t{Def().type() == "SoftmaxCrossEntropyLoss"});
      OperatorDef node("LossGradient", Def().inputs(), {}, std::move(args));
      node.mutable_inputs().resize(3);
      node.Input(GO(0));
      scores = Temporary("scores");
      node.Output(scores);
      if (HasI(2)) node.Output(GI(2));
      AddNode(std::move(node));
    }
    if (HasGO(1)) {
      const std::string axes = Node("Constant", {}, {{"value_ints", {1}}});
      const std::string sum = Node("ReduceSum", {GO(1), axes});
      const std::string log = Node("Sub", {GO(1), Node("Mul", {Node("Exp", {O(1)}), sum})});
      scores = scores.empty() ? log : Node("Add", {scores, log});
    }
    if (!scores.empty()) SetDense(0, scores);
  }
};
OPKIT_REGISTER_GRADIENT(NegativeLogLikelihoodLoss, LossGradient);
OPKIT_REGISTER_GRADIENT(SoftmaxCrossEntropyLoss, LossGradient);

}  // namespace detail

// The base of the losses and of their gradient.
template <class Context>
class LossOperatorOn : public StandardOperatorOn<Context> {
 public:
  using StandardOperatorOn<Context>::StandardOperatorOn;

 protected:
  enum class Reduction : uint8_t { kMean, kNone, kSum };

  const Reduction reduction_ =
      EnumeratorOf<Reduction>(this->type(), this->def().args(), "reduction");
  const bool has_ignored_ = this->HasArgument("ignore_index");
  const int64_t ignored_ = this->template GetSingleArgument<int64_t>("ignore_index", 0);
};

// The base on the CPU.
class LossOperator : public LossOperatorOn<CPUContext> {
 public:
  using LossOperatorOn<CPUContext>::LossOperatorOn;

 protected:
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
  // Returns the logarithm of the sum of the exponentials of `count` numbers.
  template <class At>
  static double LogOfSum(int64_t count, At at) {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t c = 0; c < count; ++c) largest = largest < at(c) ? at(c) : largest;
    for (int64_t c = 0; c < count; ++c) sum += std::exp(at(c) - largest);
    return largest + std::log(sum);
  }

  std::vector<int64_t> classes_;
};

// Computes both losses in double. The cross entropy is the negative log likelihood of the logarithm
// of the softmax along axis 1.
class LossOp final : public LossOperator {
 public:
  using LossOperator::LossOperator;
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
  template <class T>
  void Compute(const T* x, const AxisSplit& split, const T* weights, T* loss, T* log) const {
    double sum = 0, total_weight = 0;
    for (int64_t row = 0; row < split.rows(); ++row) {
      const int64_t first = split.Begin(row);
      auto at = [&](int64_t c) { return static_cast<double>(x[first + c * split.inner]); };
      double scale = 0;  // the logarithm of the sum of all exponentials
      if (softmax_) {
        scale = LogOfSum(split.extent, at);
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
};

// The gradients of the scores and, if the node has this output, of the weights. Computes in double.
class LossGradientOp final : public LossOperator {
 public:
  using LossOperator::LossOperator;
  bool RunOnDevice() override {
    Infer();
    const Tensor &scores = DenseInput(0), &dy = DenseInput(3);
    FindClasses(DenseInput(1), scores.dim(1));
    Tensor* dx = InferredOutput(0);
    Tensor* dw = HasOutput(1) ? InferredOutput(1) : nullptr;
    const AxisSplit split(scores.shape(), 1);
    return Visit<FloatTypes>([&]<class T>() {
      const std::vector<double> slopes = detail::NumbersOf<double>(dy);
      std::vector<double> weights(static_cast<size_t>(split.extent), 1), weight_slopes = weights;
      if (HasInput(2)) weights = detail::NumbersOf<double>(DenseInput(2));
      weight_slopes.assign(weights.size(), 0);
      const T* x = scores.data<T>();
      T* out = dx->mutable_data<T>();
      double total_weight = 0, total_loss = 0;
      for (const int64_t label : classes_)
        if (label >= 0) total_weight += weights[detail::Index(label)];
      const double share = reduction_ == Reduction::kMean ? 1 / total_weight : 1;
      for (int64_t row = 0; row < split.rows(); ++row) {
        const int64_t first = split.Begin(row), label = classes_[detail::Index(row)];
        auto at = [&](int64_t c) { return static_cast<double>(x[first + c * split.inner]); };
        const double scale = softmax_ ? LogOfSum(split.extent, at) : 0;
        const double slope =
            slopes[reduction_ == Reduction::kNone ? detail::Index(row) : 0] * share;
        const double weight = label < 0 ? 0 : weights[detail::Index(label)] * slope;
        for (int64_t c = 0; c < split.extent; ++c) {
          const double chance = softmax_ && weight != 0 ? std::exp(at(c) - scale) : 0;
          out[first + c * split.inner] =
              ConvertElement<T>(weight * (chance - (c == label ? 1 : 0)));
        }
        if (label < 0) continue;
        const double loss = scale - at(label);
        weight_slopes[detail::Index(label)] += slope * loss;
        total_loss += weights[detail::Index(label)] * loss;
      }
      // The mean divides by the sum of the weights, which falls with each weight of a row.
      if (reduction_ == Reduction::kMean)
        for (const int64_t label : classes_)
          if (label >= 0)
            weight_slopes[detail::Index(label)] -= slopes[0] * total_loss * share * share;
      for (int64_t c = 0; c < split.extent && dw; ++c)
        dw->mutable_data<T>()[c] = ConvertElement<T>(weight_slopes[detail::Index(c)]);
    });
  }

 private:
  const bool softmax_ = GetSingleArgument<int64_t>("softmax") != 0;
};

#define OPKIT_LOSS_OPERATOR(name, scores, labels, weights, loss, scores_doc)                  \
  OPKIT_STANDARD_OPERATOR(name, kMaker, LossOp)                                               \
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

OPKIT_STANDARD_OPERATOR(LossGradient, kNotImplemented, LossGradientOp)
    .Private()
    .NumInputs(4)
    .NumOutputs(1, 2)
    .Input(0, "scores", "of the loss", FloatTypes::DTypes())
    .Input(1, "labels", "of the loss", IndexTypes::DTypes())
    .Input(2, "weights", "of the loss; may be left out", FloatTypes::DTypes())
    .Input(3, "dY", "of the shape of the loss", FloatTypes::DTypes())
    .Output(0, "dScores", "of the shape of the scores", FloatTypes::DTypes())
    .Output(1, "dWeights", "of the shape of the weights", FloatTypes::DTypes())
    .Arg<int64_t>("ignore_index", "of the loss")
    .Arg("reduction", "of the loss", {"mean", "none", "sum"})
    .Arg<int64_t>("softmax", "1: of SoftmaxCrossEntropyLoss", 0)
    .PointwiseCost(20)
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
      if (c.num_outputs() > 1) c.SetOutput(1, c.input_dtype(0), c.input_shape(2));
    })
    .Doc("The gradient of NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.");

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_LOSS_HPP_

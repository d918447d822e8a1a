// NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss and their gradient on CUDA. The host does not
// see the labels: a label that is no class makes its loss and the gradient of its row NaN.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ROWS_LOSS_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ROWS_LOSS_HPP_

#include "opkit/backends/cuda/ops/rows/reduction.hpp"
#include "opkit/ops/nn/loss.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The labels and the weights of classes, as a kernel reads them.
template <class T>
struct CUDALabels {
  using Real = CUDASumType<T>;
  const void* labels;
  bool is_wide;      // the labels are int64, else int32
  const T* weights;  // null: 1 for each class
  int64_t classes, ignored;
  bool has_ignored;

  OPKIT_DEVICE int64_t operator[](int64_t row) const {
    return is_wide ? static_cast<const int64_t*>(labels)[row]
                   : static_cast<const int32_t*>(labels)[row];
  }
  // Returns the weight of a label: 0 if it is ignored, NaN if it is no class.
  OPKIT_DEVICE Real Weight(int64_t label) const {
    if (has_ignored && label == ignored) return 0;
    if (label < 0 || label >= classes) return std::numeric_limits<Real>::quiet_NaN();
    return weights ? static_cast<Real>(weights[label]) : 1;
  }
  OPKIT_DEVICE bool Counts(int64_t label) const {
    return label >= 0 && label < classes && !(has_ignored && label == ignored);
  }
};

// Returns the logarithm of the sum of the exponentials of the scores of a row.
template <class T, class Team>
OPKIT_DEVICE CUDASumType<T> LogOfSum(const Team& team, const T* row, const AxisSplit& split) {
  using Real = CUDASumType<T>;
  using Fold = ReduceAsLogSumExp<Real, Real>;
  auto all = Fold::Start();
  team.Each(split.extent,
            [&](int64_t c) { Fold::Add(all, static_cast<Real>(row[c * split.inner])); });
  return Fold::Finish(team.Combine(all, MergedBy<Fold>()), split.extent);
}

// Computes the loss of each row, and the logarithm of the softmax if that is an output.
template <class T>
struct CUDALossLoop {
  using Real = CUDASumType<T>;
  const T* x;
  CUDALabels<T> labels;
  AxisSplit split;
  bool softmax;
  T* each;     // the losses: an output, or null
  Real* sums;  // else the losses for CUDALossSum
  T* log;      // null if it is no output
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t row, const Team& team) const {
    const int64_t first = split.Begin(row), label = labels[row];
    const Real scale = softmax ? LogOfSum(team, x + first, split) : Real{0};
    if (log)
      team.Each(split.extent, [&](int64_t c) {
        const int64_t at = first + c * split.inner;
        log[at] = ElementOfSum<T>(static_cast<Real>(x[at]) - scale);
      });
    if (!team.is_first()) return;
    Real loss = labels.Weight(label);
    if (labels.Counts(label)) loss *= scale - static_cast<Real>(x[first + label * split.inner]);
    if (each)
      each[row] = ElementOfSum<T>(loss);
    else
      sums[row] = loss;
  }
};
// Sums the losses of all rows and divides the sum by that of their weights, if it is a mean.
template <class T>
struct CUDALossSum {
  using Real = CUDASumType<T>;
  const Real* losses;
  CUDALabels<T> labels;
  int64_t rows;
  bool mean;
  T* loss;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t, const Team& team) const {
    Real sum = 0, weight = 0;
    team.Each(rows, [&](int64_t row) {
      sum += losses[row];
      weight += labels.Weight(labels[row]);
    });
    sum = team.Sum(sum);
    weight = team.Sum(weight);
    if (team.is_first()) *loss = ElementOfSum<T>(mean ? sum / weight : sum);
  }
};

// Sums the weights of all labels.
template <class T>
struct CUDALabelWeight {
  CUDALabels<T> labels;
  int64_t rows;
  CUDASumType<T>* weight;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t, const Team& team) const {
    CUDASumType<T> sum = 0;
    team.Each(rows, [&](int64_t row) { sum += labels.Weight(labels[row]); });
    sum = team.Sum(sum);
    if (team.is_first()) *weight = sum;
  }
};
template <class T>
struct CUDALossGradientLoop {
  using Real = CUDASumType<T>;
  const T *x, *slopes;
  CUDALabels<T> labels;
  AxisSplit split;
  bool softmax, each;  // each: there is a slope for each row, else one for all
  const Real* weight;  // of all rows if the loss is a mean, else null
  T* y;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t row, const Team& team) const {
    const int64_t first = split.Begin(row), label = labels[row];
    const Real scale = softmax ? LogOfSum(team, x + first, split) : Real{0};
    Real factor = labels.Weight(label);
    if (factor != 0) {  // else the sum of the weights may be 0, too
      factor *= static_cast<Real>(slopes[each ? row : 0]);
      if (weight) factor /= *weight;
    }
    team.Each(split.extent, [&](int64_t c) {
      const int64_t at = first + c * split.inner;
      const Real chance =
          softmax && factor != 0 ? std::exp(static_cast<Real>(x[at]) - scale) : Real{0};
      y[at] = ElementOfSum<T>(factor * (chance - (c == label ? 1 : 0)));
    });
  }
};

}  // namespace detail

// The base of the losses and of their gradient on CUDA.
class CUDALossOperatorBase : public LossOperatorOn<CUDAContext> {
 public:
  using LossOperatorOn<CUDAContext>::LossOperatorOn;

 protected:
  template <class T>
  detail::CUDALabels<T> Labels() {
    const Tensor &scores = Input(0), &labels = DenseInput(1);
    return {labels.raw_data(),
            labels.dtype() == DType::kInt64,
            HasInput(2) ? DenseInput(2).data<T>() : nullptr,
            scores.dim(1),
            ignored_,
            has_ignored_};
  }
};

class CUDALossOperator final : public CUDALossOperatorBase {
 public:
  using CUDALossOperatorBase::CUDALossOperatorBase;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<FloatTypes>(query);
    KernelConfig config;
    const SymbolicShape& labels = query.inputs[1].shape;
    constexpr int64_t kLargestSum = 8;  // bytes
    if (labels.is_known() && query.def.args().Get<std::string>("reduction", "mean") != "none")
      config.scratch_bytes = labels.ToShape().numel() * kLargestSum;
    return {std::move(config)};
  }

  bool RunOnDevice() override {
    Tensor* loss = InferredOutput(0);
    Tensor* log = HasOutput(1) ? InferredOutput(1) : nullptr;
    const Tensor& scores = DenseInput(0);
    const AxisSplit split(scores.shape(), 1);
    return Visit<FloatTypes>([&]<class T>() {
      using Real = detail::CUDASumType<T>;
      const detail::CUDALabels<T> labels = Labels<T>();
      T* const out = loss->mutable_data<T>();
      const bool each = reduction_ == Reduction::kNone;
      Real* sums = nullptr;
      if (!each)
        sums = static_cast<Real*>(Scratch(split.rows() * static_cast<int64_t>(sizeof(Real))));
      ParallelForRows(
          context_, split.rows(), split.extent, split.inner,
          detail::CUDALossLoop<T>{scores.data<T>(), labels, split, softmax_, each ? out : nullptr,
                                  sums, log ? log->mutable_data<T>() : nullptr});
      if (!each)
        ParallelForTeamsOf<256>(context_, 1,
                                detail::CUDALossSum<T>{sums, labels, split.rows(),
                                                       reduction_ == Reduction::kMean, out});
    });
  }

 private:
  const bool softmax_ = type() == "SoftmaxCrossEntropyLoss";
};

class CUDALossGradientOperator final : public CUDALossOperatorBase {
 public:
  using CUDALossOperatorBase::CUDALossOperatorBase;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<FloatTypes>(query);
    if (query.outputs.size() > 1 && !query.def.outputs()[1].empty())
      throw UnsupportedOperatorFeature("it does not compute the gradient of the weights");
    KernelConfig config;
    config.scratch_bytes = sizeof(double);
    return {std::move(config)};
  }

  bool RunOnDevice() override {
    Tensor* dx = InferredOutput(0);
    const Tensor &scores = DenseInput(0), &dy = DenseInput(3);
    const AxisSplit split(scores.shape(), 1);
    return Visit<FloatTypes>([&]<class T>() {
      using Real = detail::CUDASumType<T>;
      const detail::CUDALabels<T> labels = Labels<T>();
      Real* weight = nullptr;
      if (reduction_ == Reduction::kMean) {
        weight = static_cast<Real*>(Scratch(sizeof(double)));
        ParallelForTeamsOf<256>(context_, 1,
                                detail::CUDALabelWeight<T>{labels, split.rows(), weight});
      }
      ParallelForRows(context_, split.rows(), split.extent, split.inner,
                      detail::CUDALossGradientLoop<T>{scores.data<T>(), dy.data<T>(), labels, split,
                                                      softmax_, reduction_ == Reduction::kNone,
                                                      weight, dx->mutable_data<T>()});
    });
  }

 private:
  const bool softmax_ = GetSingleArgument<int64_t>("softmax") != 0;
};

OPKIT_CUDA_OPERATOR(NegativeLogLikelihoodLoss, CUDALossOperator);
OPKIT_CUDA_OPERATOR(SoftmaxCrossEntropyLoss, CUDALossOperator);
OPKIT_CUDA_OPERATOR(LossGradient, CUDALossGradientOperator);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ROWS_LOSS_HPP_

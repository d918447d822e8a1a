// Normalizations on CUDA: LayerNormalization, RMSNormalization, BatchNormalization,
// GroupNormalization, InstanceNormalization and MeanVarianceNormalization. The variance is the mean
// of the squared distances from the mean, which a pass before has found.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ROWS_NORMALIZATION_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ROWS_NORMALIZATION_HPP_

#include "opkit/backends/cuda/ops/rows/reduction.hpp"
#include "opkit/ops/nn/group_normalization.hpp"
#include "opkit/ops/nn/layer_normalization.hpp"
#include "opkit/ops/nn/mean_variance_normalization.hpp"
#include "opkit/ops/nn/normalization.hpp"
#include "opkit/ops/nn/row_normalization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// A tensor of float32, float64, float16 or bfloat16 whose elements are read and written as numbers
// of type Real, such as the scale of each channel. The type is found at each element, so that a
// kernel is compiled once for all types of its parameters. Null: no tensor.
template <class Real>
struct CUDANumbers {
  void* data = nullptr;
  DType dtype = DType::kFloat32;

  static CUDANumbers Of(const Tensor& tensor) {
    return {const_cast<void*>(tensor.raw_data()), tensor.dtype()};
  }
  static CUDANumbers Of(Tensor* tensor) { return {tensor->raw_mutable_data(), tensor->dtype()}; }
  OPKIT_DEVICE explicit operator bool() const { return static_cast<bool>(data); }
  OPKIT_DEVICE Real operator[](int64_t i) const {
    switch (dtype) {
      case DType::kFloat64:
        return static_cast<Real>(static_cast<const double*>(data)[i]);
      case DType::kFloat16:
        return static_cast<Real>(static_cast<float>(static_cast<const float16*>(data)[i]));
      case DType::kBFloat16:
        return static_cast<Real>(static_cast<float>(static_cast<const bfloat16*>(data)[i]));
      default:
        return static_cast<Real>(static_cast<const float*>(data)[i]);
    }
  }
  OPKIT_DEVICE void Set(int64_t i, Real value) const {
    switch (dtype) {
      case DType::kFloat64:
        static_cast<double*>(data)[i] = static_cast<double>(value);
        break;
      case DType::kFloat16:
        static_cast<float16*>(data)[i] = float16(static_cast<float>(value));
        break;
      case DType::kBFloat16:
        static_cast<bfloat16*>(data)[i] = bfloat16(static_cast<float>(value));
        break;
      default:
        static_cast<float*>(data)[i] = static_cast<float>(value);
    }
  }
};

// The mean and the variance of `count` numbers at(0), at(1), …, in every thread of the team.
template <class Real>
struct CUDAMoments {
  Real mean, variance;

  template <class Team, class At>
  OPKIT_DEVICE static CUDAMoments Of(const Team& team, int64_t count, At at) {
    Real sum = 0, squares = 0;
    team.Each(count, [&](int64_t i) { sum += at(i); });
    const Real mean = team.Sum(sum) / static_cast<Real>(count);
    team.Each(count, [&](int64_t i) {
      const Real distance = at(i) - mean;
      squares += distance * distance;
    });
    return {mean, team.Sum(squares) / static_cast<Real>(count)};
  }
};

template <class T>
struct CUDALayerNormalizationLoop {
  using Real = CUDASumType<T>;
  const T *x, *scale, *bias;  // bias: null if there is none
  T* y;
  CUDANumbers<Real> mean, inv_std_dev;
  int64_t columns;
  bool by_column;        // scale and bias have an element for each column
  BroadcastIndex index;  // else: where their elements are
  float epsilon;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t row, const Team& team) const {
    const int64_t begin = row * columns;
    const auto moments = CUDAMoments<Real>::Of(
        team, columns, [&](int64_t i) { return static_cast<Real>(x[begin + i]); });
    const Real factor = 1 / std::sqrt(moments.variance + static_cast<Real>(epsilon));
    if (team.is_first()) {
      if (mean) mean.Set(row, moments.mean);
      if (inv_std_dev) inv_std_dev.Set(row, factor);
    }
    team.Each(columns, [&](int64_t i) {
      int64_t from[2] = {i, i};
      if (!by_column) index.Find<2>(begin + i, from);
      Real value = (static_cast<Real>(x[begin + i]) - moments.mean) * factor *
                   static_cast<Real>(scale[from[0]]);
      if (bias) value += static_cast<Real>(bias[from[1]]);
      y[begin + i] = ElementOfSum<T>(value);
    });
  }
};

template <class T>
struct CUDARMSNormalizationLoop {
  using Real = CUDASumType<T>;
  const T* x;
  T* y;
  CUDANumbers<Real> scale;
  BroadcastIndex index;  // of the scale, within a row
  float epsilon;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t row, const Team& team) const {
    const int64_t columns = index.size, begin = row * columns;
    Real squares = 0;
    team.Each(columns, [&](int64_t i) {
      const auto value = static_cast<Real>(x[begin + i]);
      squares += value * value;
    });
    squares = team.Sum(squares);
    const Real factor =
        1 / std::sqrt(squares / static_cast<Real>(columns) + static_cast<Real>(epsilon));
    team.Each(columns, [&](int64_t i) {
      int64_t from = 0;
      index.Find<1>(i, &from);
      y[begin + i] = ElementOfSum<T>(static_cast<Real>(x[begin + i]) * factor * scale[from]);
    });
  }
};

// Normalizes groups of neighbouring elements, which are `pixels` for each of some channels:
// GroupNormalization, and InstanceNormalization with a group for each channel.
template <class T>
struct CUDAGroupNormalizationLoop {
  using Real = CUDASumType<T>;
  const T* x;
  T* y;
  CUDANumbers<Real> scale, bias;
  int64_t size, pixels, channels;  // size: elements of a group
  Real epsilon;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t group, const Team& team) const {
    const int64_t begin = group * size;
    const auto moments = CUDAMoments<Real>::Of(
        team, size, [&](int64_t i) { return static_cast<Real>(x[begin + i]); });
    const Real factor = 1 / std::sqrt(moments.variance + epsilon);
    team.Each(size, [&](int64_t i) {
      const int64_t channel = (begin + i) / pixels % channels;
      const Real normal = (static_cast<Real>(x[begin + i]) - moments.mean) * factor;
      y[begin + i] = ElementOfSum<T>(normal * scale[channel] + bias[channel]);
    });
  }
};

// The parameters of BatchNormalization.
template <class Real>
struct CUDABatchParameters {
  CUDANumbers<Real> scale, bias, mean, variance;
  int64_t batch, channels, pixels;
  Real epsilon;
  OPKIT_DEVICE Real Normalized(Real x, int64_t channel, Real center, Real spread) const {
    return (x - center) * (scale[channel] / std::sqrt(spread + epsilon)) + bias[channel];
  }
};
template <class T>
struct CUDABatchNormalizationLoop {
  using Real = CUDASumType<T>;
  const T* x;
  T* y;
  CUDABatchParameters<Real> by;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t channel = i / by.pixels % by.channels;
    y[i] = ElementOfSum<T>(
        by.Normalized(static_cast<Real>(x[i]), channel, by.mean[channel], by.variance[channel]));
  }
};
// Normalizes a channel by its own statistics and updates the running ones.
template <class T>
struct CUDABatchTrainingLoop {
  using Real = CUDASumType<T>;
  const T* x;
  T* y;
  CUDABatchParameters<Real> by;
  CUDANumbers<Real> running_mean, running_variance;
  Real momentum;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t channel, const Team& team) const {
    const int64_t count = by.batch * by.pixels;
    const auto place = [&](int64_t i) {
      return (i / by.pixels * by.channels + channel) * by.pixels + i % by.pixels;
    };
    CUDAMoments<Real> moments{0, 0};
    if (count > 0)
      moments = CUDAMoments<Real>::Of(team, count,
                                      [&](int64_t i) { return static_cast<Real>(x[place(i)]); });
    team.Each(count, [&](int64_t i) {
      y[place(i)] = ElementOfSum<T>(
          by.Normalized(static_cast<Real>(x[place(i)]), channel, moments.mean, moments.variance));
    });
    if (!team.is_first()) return;
    if (running_mean)
      running_mean.Set(channel, by.mean[channel] * momentum + moments.mean * (1 - momentum));
    if (running_variance)
      running_variance.Set(channel,
                           by.variance[channel] * momentum + moments.variance * (1 - momentum));
  }
};

template <class T>
struct CUDAMeanVarianceLoop {
  using Real = CUDASumType<T>;
  const T* x;
  T* y;
  BroadcastIndex kept, reduced;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t group, const Team& team) const {
    int64_t first = 0;
    kept.Find<1>(group, &first);
    const auto place = [&](int64_t i) {
      int64_t at = 0;
      reduced.Find<1>(i, &at);
      return first + at;
    };
    const auto moments = CUDAMoments<Real>::Of(
        team, reduced.size, [&](int64_t i) { return static_cast<Real>(x[place(i)]); });
    const Real divisor = std::sqrt(moments.variance) + static_cast<Real>(1e-9);
    team.Each(reduced.size, [&](int64_t i) {
      const int64_t at = place(i);
      y[at] = ElementOfSum<T>((static_cast<Real>(x[at]) - moments.mean) / divisor);
    });
  }
};

}  // namespace detail

class CUDALayerNormalizationOperator final : public LayerNormalizationOn<CUDAContext> {
 public:
  using LayerNormalizationOn<CUDAContext>::LayerNormalizationOn;
  static constexpr auto& Propose = ProposeTypes<FloatTypes>;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    Tensor* mean = HasOutput(1) ? InferredOutput(1) : nullptr;
    Tensor* inv_std_dev = HasOutput(2) ? InferredOutput(2) : nullptr;
    const Tensor &x = DenseInput(0), &scale = DenseInput(1);
    const Tensor* bias = HasInput(2) ? &DenseInput(2) : nullptr;
    const Sizes sizes = SizesOf(x.shape());
    return Visit<FloatTypes>([&]<class T>() {
      using Numbers = detail::CUDANumbers<detail::CUDASumType<T>>;
      detail::CUDALayerNormalizationLoop<T> loop;
      loop.x = x.data<T>();
      loop.scale = scale.data<T>();
      loop.bias = bias ? bias->data<T>() : nullptr;
      loop.y = y->mutable_data<T>();
      if (mean) loop.mean = Numbers::Of(mean);
      if (inv_std_dev) loop.inv_std_dev = Numbers::Of(inv_std_dev);
      loop.columns = sizes.columns;
      const Shape& bias_shape = bias ? bias->shape() : scale.shape();
      loop.by_column = IsRow(scale.shape(), x.shape(), sizes.columns) &&
                       IsRow(bias_shape, x.shape(), sizes.columns);
      if (!loop.by_column)
        loop.index = detail::BroadcastIndex::Of(
            x.shape(),
            {BroadcastStrides(scale.shape(), x.shape()), BroadcastStrides(bias_shape, x.shape())});
      loop.epsilon = epsilon_;
      ParallelForTeams(context_, sizes.rows, sizes.columns, loop);
    });
  }
};

class CUDARMSNormalizationOperator final : public AxisOperatorOn<CUDAContext> {
 public:
  using AxisOperatorOn<CUDAContext>::AxisOperatorOn;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<FloatTypes>(query);
    RequireDTypes(query, 1, {query.inputs[0].dtype});
    return {KernelConfig()};
  }

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor &x = DenseInput(0), &scale = DenseInput(1);
    const int axis = Axis(x.rank());
    std::vector<int64_t> extents;
    for (int i = axis; i < x.rank(); ++i) extents.push_back(x.dim(i));
    const Shape row{Dims(extents)};
    return Visit<FloatTypes>([&]<class T>() {
      ParallelForTeams(
          context_, x.shape().NumelBetween(0, axis), row.numel(),
          detail::CUDARMSNormalizationLoop<T>{
              x.data<T>(), y->mutable_data<T>(),
              detail::CUDANumbers<detail::CUDASumType<T>>::Of(scale),
              detail::BroadcastIndex::Of(row, {BroadcastStrides(scale.shape(), row)}), epsilon_});
    });
  }

 private:
  const float epsilon_ = GetSingleArgument<float>("epsilon");
};

// GroupNormalization, or InstanceNormalization (kEachChannel).
template <bool kEachChannel>
class CUDAGroupNormalizationOperator final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  static constexpr auto& Propose = ProposeTypes<FloatTypes>;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor &x = DenseInput(0), &scale = DenseInput(1), &bias = DenseInput(2);
    if (y->numel() == 0) return true;
    const int64_t channels = x.dim(1), pixels = x.shape().NumelBetween(2, x.rank());
    const int64_t groups = kEachChannel ? channels : groups_;
    const int64_t size = channels / groups * pixels;
    return Visit<FloatTypes>([&]<class T>() {
      using Real = detail::CUDASumType<T>;
      using Numbers = detail::CUDANumbers<Real>;
      ParallelForTeams(context_, x.dim(0) * groups, size,
                       detail::CUDAGroupNormalizationLoop<T>{
                           x.data<T>(), y->mutable_data<T>(), Numbers::Of(scale), Numbers::Of(bias),
                           size, pixels, channels, static_cast<Real>(epsilon_)});
    });
  }

 private:
  const double epsilon_ = GetSingleArgument<double>("epsilon");
  const int64_t groups_ = kEachChannel ? 0 : GetSingleArgument<int64_t>("num_groups");
};

class CUDABatchNormalizationOperator final : public BatchNormalizationOn<CUDAContext> {
 public:
  using BatchNormalizationOn<CUDAContext>::BatchNormalizationOn;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    for (size_t i = 1; i < query.inputs.size(); ++i) RequireTypes<FloatTypes>(query, i);
    return ProposeTypes<FloatTypes>(query);
  }

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor& x = DenseInput(0);
    Tensor* running[2] = {};
    for (int o = 1; o < 3; ++o)
      if (HasOutput(o)) running[o - 1] = InferredOutput(o);
    if (y->numel() == 0 && !training_) return true;
    const Sizes sizes = SizesOf(x.shape());
    return Visit<FloatTypes>([&]<class T>() {
      using Real = detail::CUDASumType<T>;
      using Numbers = detail::CUDANumbers<Real>;
      const detail::CUDABatchParameters<Real> by{Numbers::Of(DenseInput(1)),
                                                 Numbers::Of(DenseInput(2)),
                                                 Numbers::Of(DenseInput(3)),
                                                 Numbers::Of(DenseInput(4)),
                                                 sizes.batch,
                                                 sizes.channels,
                                                 sizes.pixels,
                                                 static_cast<Real>(epsilon_)};
      if (!training_)
        return ParallelFor(
            context_, y->numel(),
            detail::CUDABatchNormalizationLoop<T>{x.data<T>(), y->mutable_data<T>(), by});
      Numbers statistics[2];
      for (int i = 0; i < 2; ++i)
        if (running[i]) statistics[i] = Numbers::Of(running[i]);
      ParallelForTeamsOf<256>(
          context_, sizes.channels,
          detail::CUDABatchTrainingLoop<T>{x.data<T>(), y->mutable_data<T>(), by, statistics[0],
                                           statistics[1], static_cast<Real>(momentum_)});
    });
  }
};

class CUDAMeanVarianceOperator final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  static constexpr auto& Propose = ProposeTypes<FloatTypes>;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor& x = DenseInput(0);
    if (y->numel() == 0) return true;
    const ReducePlan plan(x.shape(), AxisMask(axes_, x.rank(), type()));
    return Visit<FloatTypes>([&]<class T>() {
      ParallelForTeamsOf<256>(context_, plan.outputs,
                              detail::CUDAMeanVarianceLoop<T>{x.data<T>(), y->mutable_data<T>(),
                                                              detail::IndexOf(plan.kept),
                                                              detail::IndexOf(plan.reduced)});
    });
  }

 private:
  const std::vector<int64_t> axes_ = GetRepeatedArgument<int64_t>("axes", {0, 2, 3});
};

OPKIT_CUDA_OPERATOR(LayerNormalization, CUDALayerNormalizationOperator);
OPKIT_CUDA_OPERATOR(RMSNormalization, CUDARMSNormalizationOperator);
OPKIT_CUDA_OPERATOR(GroupNormalization, CUDAGroupNormalizationOperator<false>);
OPKIT_CUDA_OPERATOR(InstanceNormalization, CUDAGroupNormalizationOperator<true>);
OPKIT_CUDA_OPERATOR(BatchNormalization, CUDABatchNormalizationOperator);
OPKIT_CUDA_OPERATOR(MeanVarianceNormalization, CUDAMeanVarianceOperator);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ROWS_NORMALIZATION_HPP_

// LayerNormalization: scales the elements of the last axes to mean 0 and variance 1. Sources:
// https://onnx.ai/onnx/operators/onnx__LayerNormalization.html, https://arxiv.org/abs/1607.06450.
#ifndef OPKIT_OPS_NN_LAYER_NORMALIZATION_HPP_
#define OPKIT_OPS_NN_LAYER_NORMALIZATION_HPP_

#include <cmath>

#include "opkit/ops/nn/normalization_gradient.hpp"
#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/broadcast_loop.hpp"
#include "opkit/ops/support/element_sum.hpp"
#include "opkit/ops/support/element_types.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The base of the kernels of LayerNormalization. LayerNormalizationOpBase is the base on the CPU.
template <class Context>
class LayerNormalizationOn : public StandardOperatorOn<Context> {
 public:
  using StandardOperatorOn<Context>::StandardOperatorOn;

 protected:
  // X viewed as [rows, columns]. Each row is normalized.
  struct Sizes {
    int64_t rows, columns;
  };
  Sizes SizesOf(const Shape& x) const {
    const int axis = NormalizeAxis(axis_, x.rank(), this->type());
    return {x.NumelBetween(0, axis), x.NumelBetween(axis, x.rank())};
  }
  // True if a tensor of `shape`, broadcast to X, is the same row of `columns` numbers in all rows.
  static bool IsRow(const Shape& shape, const Shape& x, int64_t columns) {
    if (shape.numel() != columns || shape.rank() > x.rank()) return false;
    int64_t seen = 1;  // elements of X in the axes so far
    for (int axis = 1; axis <= shape.rank(); ++axis) {
      if (shape.dim(-axis) != (seen < columns ? x.dim(-axis) : 1)) return false;
      seen *= x.dim(-axis);
    }
    return true;
  }
  // Writes one element of Mean or InvStdDev, as float32 or bfloat16.
  static void Store(Tensor& statistics, int64_t row, double value) {
    if (statistics.dtype() == DType::kBFloat16)
      statistics.mutable_data<bfloat16>()[row] = static_cast<float>(value);
    else
      statistics.mutable_data<float>()[row] = static_cast<float>(value);
  }

  const float epsilon_ = this->template GetSingleArgument<float>("epsilon");

 private:
  const int64_t axis_ = this->template GetSingleArgument<int64_t>("axis");
};
using LayerNormalizationOpBase = LayerNormalizationOn<CPUContext>;

class LayerNormalizationOp final : public LayerNormalizationOpBase {
 public:
  using LayerNormalizationOpBase::LayerNormalizationOpBase;

  // Computes in double for every stash_type.
  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      Tensor* y = InferredOutput(0);
      Tensor* mean = HasOutput(1) ? InferredOutput(1) : nullptr;
      Tensor* inv_std_dev = HasOutput(2) ? InferredOutput(2) : nullptr;
      const Tensor &x = DenseInput(0), &scale = DenseInput(1);
      const Sizes sizes = SizesOf(x.shape());
      const T *in = x.data<T>(), *scales = scale.data<T>();
      const T* biases = HasInput(2) ? DenseInput(2).data<T>() : nullptr;
      const Shape& bias_shape = biases ? Input(2).shape() : scale.shape();
      const BroadcastLoop loop(x.shape(), {&scale.shape(), &bias_shape});
      T* out = y->mutable_data<T>();
      ParallelFor(sizes.rows, [&](int64_t row) {
        const int64_t begin = row * sizes.columns;
        const auto count = static_cast<double>(sizes.columns);
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < sizes.columns; ++i) sum += static_cast<double>(in[begin + i]);
        const double center = sum / count;
        for (int64_t i = 0; i < sizes.columns; ++i) {
          const double distance = static_cast<double>(in[begin + i]) - center;
          squares += distance * distance;
        }
        const double factor = 1 / std::sqrt(squares / count + static_cast<double>(epsilon_));
        if (mean) Store(*mean, row, center);
        if (inv_std_dev) Store(*inv_std_dev, row, factor);
        loop.Walk(begin, begin + sizes.columns, [&](int64_t at, int64_t n, const int64_t* from) {
          for (int64_t i = 0; i < n; ++i) {
            double value = (static_cast<double>(in[at + i]) - center) * factor *
                           static_cast<double>(scales[from[0] + i * loop.step(0)]);
            if (biases) value += static_cast<double>(biases[from[1] + i * loop.step(1)]);
            out[at + i] = detail::ElementOfSum<T>(value);
          }
        });
      });
    });
  }
};

namespace detail {

inline void InferLayerNormalization(InferenceContext& c) {
  const DType dtype = ExpectSameDType(c);
  const SymbolicShape& x = c.input_shape(0);
  c.SetOutput(0, dtype, x);
  const int64_t stash = c.Arg<int64_t>("stash_type");
  if (stash != 1 && stash != 16)
    Throw(ErrorCode::kInvalidArgument, "LayerNormalization: stash_type ", stash,
          ", expected 1 (float32) or 16 (bfloat16)");
  SymbolicShape statistics;
  if (x.has_rank()) {
    const int axis = NormalizeAxis(c.Arg<int64_t>("axis"), x.rank(), c.def().type());
    for (int i = 1; i < c.num_inputs(); ++i) {
      if (!c.HasInput(i) || !c.input_shape(i).has_rank()) continue;
      if (!MayBroadcastTo(c.input_shape(i), x))
        Throw(ErrorCode::kInvalidArgument, "LayerNormalization: ", i == 1 ? "Scale" : "B", " is ",
              ToString(c.input_shape(i)), ", which cannot be broadcast to X, which is ",
              ToString(x));
    }
    std::vector<Dim> dims = x.dims();
    for (int i = axis; i < x.rank(); ++i) dims[Index(i)] = 1;
    statistics = SymbolicShape(std::move(dims));
  }
  for (int o = 1; o < c.num_outputs(); ++o)
    c.SetOutput(o, stash == 1 ? DType::kFloat32 : DType::kBFloat16, statistics);
}

class LayerNormalizationGradient final : public NormalizationGradient {
 public:
  using NormalizationGradient::NormalizationGradient;

 private:
  void Make() override {
    const Normalized x = Normalize(I(0), AxesFrom(Def().args().Get<int64_t>("axis", -1), I(0)));
    std::vector<std::string> terms;
    if (HasGO(0)) {
      terms.push_back(ThroughNormalize(x, Node("Mul", {GO(0), I(1)})));
      GiveSummed(1, Node("Mul", {GO(0), x.value}));
      if (HasI(2)) GiveSummed(2, GO(0));
    }
    if (HasGO(1)) terms.push_back(Average(Node("CastLike", {GO(1), I(0)}), x.axes));
    if (HasGO(2)) {
      const std::string slope = Node("Mul", {Node("CastLike", {GO(2), I(0)}), x.rate});
      const std::string spread = Average(Node("Mul", {slope, x.rate}), x.axes);
      terms.push_back(Node("Neg", {Node("Mul", {x.value, spread})}));
    }
    Give(0, "Sum", terms);
  }
};
OPKIT_REGISTER_GRADIENT(LayerNormalization, LayerNormalizationGradient);

}  // namespace detail

OPKIT_STANDARD_OPERATOR(LayerNormalization, kMaker, LayerNormalizationOp)
    .Doc(
        "Y = (X - Mean) * InvStdDev * Scale + B, with the mean and the standard deviation of "
        "the elements along the axes from `axis` on.")
    .NumInputs(2, 3)
    .NumOutputs(1, 3)
    .Input(0, "X", "a tensor", FloatTypes::DTypes())
    .Input(1, "Scale", "can be broadcast to X; usually of the shape of the normalized axes",
           FloatTypes::DTypes())
    .Input(2, "B", "as Scale; optional", FloatTypes::DTypes())
    .Output(0, "Y", "as X")
    .Output(1, "Mean", "of X, with extents of 1 from `axis` on; optional")
    .Output(2, "InvStdDev", "1 / sqrt(variance + epsilon), shaped as Mean; optional")
    .Arg<int64_t>("axis", "the first axis that is normalized; negative: from the last", -1)
    .Arg<float>("epsilon", "added to the variance", 1e-5f)
    .Arg<int64_t>("stash_type", "the type of Mean and InvStdDev: 1 (float32) or 16 (bfloat16)", 1)
    .Inplace({{0, 0}})
    .PointwiseCost(8)
    .Infer(&detail::InferLayerNormalization);

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_LAYER_NORMALIZATION_HPP_

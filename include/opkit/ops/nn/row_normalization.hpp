// Hardmax, LpNormalization and RMSNormalization: scale rows of a tensor, or keep their largest
// element. Source: the ONNX operator pages (https://onnx.ai/onnx/operators), opsets 13, 22 and 23.
#ifndef OPKIT_OPS_NN_ROW_NORMALIZATION_HPP_
#define OPKIT_OPS_NN_ROW_NORMALIZATION_HPP_

#include <cmath>

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/broadcast.hpp"
#include "opkit/ops/support/broadcast_loop.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferRowNormalization(InferenceContext& c) {
  const SymbolicShape& x = c.input_shape(0);
  if (x.has_rank()) NormalizeAxis(c.Arg<int64_t>("axis"), x.rank(), c.def().type());
  c.SetOutput(0, c.input_dtype(0), x);
}
inline void InferRMSNormalization(InferenceContext& c) {
  const SymbolicShape &x = c.input_shape(0), &scale = c.input_shape(1);
  if (c.Arg<int64_t>("stash_type") != OnnxNumberOf(DType::kFloat32) &&
      c.Arg<int64_t>("stash_type") != OnnxNumberOf(DType::kFloat64))
    Throw(ErrorCode::kUnsupported, "RMSNormalization: stash_type is ", c.Arg<int64_t>("stash_type"),
          ", expected 1 for float32 or 11 for float64");
  if (x.has_rank()) {
    const int axis = NormalizeAxis(c.Arg<int64_t>("axis"), x.rank(), "RMSNormalization");
    const SymbolicShape row(std::vector<Dim>(x.dims().begin() + axis, x.dims().end()));
    if (scale.has_rank() && !MayBroadcastTo(scale, row))
      Throw(ErrorCode::kInvalidArgument, "RMSNormalization: the scale of shape ", ToString(scale),
            " cannot be broadcast to the normalized axes, ", ToString(row));
  }
  c.SetOutput(0, c.input_dtype(1), x);
}

// With n the norm of a row: (g - s sum(g y)) / n, where s is y for p=2, the sign of x for p=1. 0
// where the norm is 0.
OPKIT_NODE_GRADIENT(LpNormalization) {
  const auto axis = Def().args().Get<int64_t>("axis", -1);
  const bool square = Def().args().Get<int64_t>("p", 2) == 2;
  const std::string axes = Integers({axis});
  const std::string norm = Node(square ? "ReduceL2" : "ReduceL1", {I(0), axes});
  const std::string infinity = Number(std::numeric_limits<float>::infinity(), I(0));
  const std::string divisor =
      Node("Where", {Node("Equal", {norm, Number(0, I(0))}), infinity, norm});
  const std::string sum = Node("ReduceSum", {Node("Mul", {GO(0), O(0)}), axes});
  const std::string along = Node("Mul", {square ? O(0) : Node("Sign", {I(0)}), sum});
  Give(0, "Div", {Node("Sub", {GO(0), along}), divisor});
}

// With r = 1 / sqrt(mean(x^2) + epsilon) and h = g scale: (h - x r^2 mean(h x)) r.
OPKIT_NODE_GRADIENT(RMSNormalization) {
  const auto axis = Def().args().Get<int64_t>("axis", -1);
  const std::string axes = AxesFrom(axis, I(0));
  const std::string mean = Node("ReduceMean", {Node("Mul", {I(0), I(0)}), axes});
  const std::string epsilon = Number(Def().args().Get<float>("epsilon", 1e-5f), I(0));
  const std::string rate = Node("Reciprocal", {Node("Sqrt", {Node("Add", {mean, epsilon})})});
  const std::string normal = Node("Mul", {I(0), rate});
  const std::string slope = Node("CastLike", {Node("Mul", {GO(0), I(1)}), I(0)});
  const std::string along = Node("ReduceMean", {Node("Mul", {slope, normal}), axes});
  Give(0, "Mul", {Node("Sub", {slope, Node("Mul", {normal, along})}), rate});
  GiveSummed(1, Node("Mul", {GO(0), Node("CastLike", {normal, GO(0)})}));
}

}  // namespace detail

class HardmaxOp final : public AxisOperator {
 public:
  using AxisOperator::AxisOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    const AxisSplit split(x.shape(), Axis(x.rank()));
    return Visit<FloatTypes>([&]<class T>() {
      const T* from = x.data<T>();
      T* to = y->mutable_data<T>();
      for (int64_t row = 0; row < split.rows() && split.extent > 0; ++row) {
        const int64_t first = split.Begin(row);
        int64_t largest = first;
        for (int64_t i = 1; i < split.extent; ++i)
          if (from[largest] < from[first + i * split.inner]) largest = first + i * split.inner;
        for (int64_t i = 0; i < split.extent; ++i)
          to[first + i * split.inner] = T(first + i * split.inner == largest ? 1.f : 0.f);
      }
    });
  }
};

// The base of the kernels of LpNormalization.
template <class Context>
class LpNormalizationOn : public AxisOperatorOn<Context> {
 public:
  LpNormalizationOn(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : AxisOperatorOn<Context>(def, ws, config) {
    if (p_ != 1 && p_ != 2)
      Throw(ErrorCode::kInvalidArgument, "LpNormalization: p is ", p_, ", expected 1 or 2");
  }

 protected:
  const int64_t p_ = this->template GetSingleArgument<int64_t>("p");
};

class LpNormalizationOp final : public LpNormalizationOn<CPUContext> {
 public:
  using LpNormalizationOn<CPUContext>::LpNormalizationOn;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    const AxisSplit split(x.shape(), Axis(x.rank()));
    return Visit<FloatTypes>([&]<class T>() {
      const T* from = x.data<T>();
      T* to = y->mutable_data<T>();
      for (int64_t row = 0; row < split.rows(); ++row) {
        const int64_t first = split.Begin(row);
        double norm = 0;
        for (int64_t i = 0; i < split.extent; ++i) {
          const auto value = static_cast<double>(from[first + i * split.inner]);
          norm += p_ == 1 ? std::fabs(value) : value * value;
        }
        if (p_ == 2) norm = std::sqrt(norm);
        for (int64_t i = 0; i < split.extent; ++i) {
          const int64_t at = first + i * split.inner;
          to[at] = norm == 0 ? T(0.f) : ConvertElement<T>(static_cast<double>(from[at]) / norm);
        }
      }
    });
  }
};

class RMSNormalizationOp final : public AxisOperator {
 public:
  using AxisOperator::AxisOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    const std::vector<double> scale = detail::NumbersOf<double>(DenseInput(1));
    Tensor* y = InferredOutput(0);
    const int axis = Axis(x.rank());
    const int64_t rows = x.shape().NumelBetween(0, axis);
    const int64_t size = x.shape().NumelBetween(axis, x.rank());
    std::vector<int64_t> extents;
    for (int i = axis; i < x.rank(); ++i) extents.push_back(x.dim(i));
    const BroadcastLoop loop(Shape(Dims(extents)), {&Input(1).shape()});
    return Visit<FloatTypes>([&]<class T>() {
      FloatTypes::Visit(y->dtype(), [&]<class R>() {
        for (int64_t row = 0; row < rows; ++row) {
          const T* from = x.data<T>() + row * size;
          R* to = y->mutable_data<R>() + row * size;
          double squares = 0;
          for (int64_t i = 0; i < size; ++i)
            squares += static_cast<double>(from[i]) * static_cast<double>(from[i]);
          const double factor =
              1 / std::sqrt(squares / static_cast<double>(size) + static_cast<double>(epsilon_));
          loop.Walk(0, loop.size(), [&](int64_t at, int64_t n, const int64_t* place) {
            for (int64_t i = 0; i < n; ++i)
              to[at + i] = ConvertElement<R>(static_cast<double>(from[at + i]) * factor *
                                             scale[detail::Index(place[0] + i * loop.step(0))]);
          });
        }
      });
    });
  }

 private:
  const float epsilon_ = GetSingleArgument<float>("epsilon");
};

OPKIT_STANDARD_OPERATOR(Hardmax, kNone, HardmaxOp)
    .Input(0, "input", "any tensor of rank 1 or more", FloatTypes::DTypes())
    .Output(0, "output", "of the type and shape of the input", FloatTypes::DTypes())
    .Arg<int64_t>("axis", "along which a row lies; negative ones count from the end", -1)
    .PointwiseCost(1)
    .Infer(detail::InferRowNormalization)
    .Doc("1 at the first largest element of each row, else 0.");
OPKIT_STANDARD_OPERATOR(LpNormalization, kMaker, LpNormalizationOp)
    .Input(0, "input", "any tensor of rank 1 or more", FloatTypes::DTypes())
    .Output(0, "output", "of the type and shape of the input", FloatTypes::DTypes())
    .Arg<int64_t>("axis", "along which a row lies; negative ones count from the end", -1)
    .Arg<int64_t>("p", "1: the norm is the sum of magnitudes, 2: the root of the sum of squares", 2)
    .PointwiseCost(3)
    .Infer(detail::InferRowNormalization)
    .Doc("Each row divided by its norm; 0 where the norm is 0.");
OPKIT_STANDARD_OPERATOR(RMSNormalization, kMaker, RMSNormalizationOp)
    .NumInputs(2)
    .Input(0, "X", "any tensor of rank 1 or more", FloatTypes::DTypes())
    .Input(1, "scale", "a factor of each element; can be broadcast to the normalized axes",
           FloatTypes::DTypes())
    .Output(0, "Y", "of the shape of X, of the type of `scale`", FloatTypes::DTypes())
    .Arg<int64_t>("axis", "the first of the normalized axes; negative ones count from the end", -1)
    .Arg<float>("epsilon", "added to the mean of the squares", 1e-5f)
    .Arg<int64_t>("stash_type",
                  "ONNX's number of the type to compute in; opkit computes in double anyway", 1)
    .PointwiseCost(4)
    .Infer(detail::InferRMSNormalization)
    .Doc("Divides by the root of the mean of the squares over the last axes, times a scale.");

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_ROW_NORMALIZATION_HPP_

// CumSum and CumProd: running sums and products along an axis. Source:
// https://onnx.ai/onnx/operators/onnx__CumSum.html and onnx__CumProd.html, opsets 14 and 26.
#ifndef OPKIT_OPS_MATH_CUMULATIVE_HPP_
#define OPKIT_OPS_MATH_CUMULATIVE_HPP_

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the axis in a tensor of one integer. Throws kInvalidArgument for another number of
// elements, kOutOfRange for an axis outside the rank.
inline int AxisInTensor(const Tensor& axis, int rank, std::string_view op) {
  const Dims list = IntegerList(axis, "axis");
  if (list.size() != 1)
    Throw(ErrorCode::kInvalidArgument, op, ": 'axis' is ", axis, ", expected one integer");
  return NormalizeAxis(list[0], rank, op);
}

inline void InferCumulative(InferenceContext& c) {
  const SymbolicShape& x = c.input_shape(0);
  if (const Tensor* axis = c.input_constant(1); axis && x.has_rank())
    AxisInTensor(*axis, x.rank(), c.def().type());
  c.SetOutput(0, c.input_dtype(0), x);
}

OPKIT_NODE_GRADIENT(CumSum) {
  const Arguments& args = Def().args();
  Give(0, "CumSum", {GO(0), I(1)},
       {{"exclusive", args.Get<int64_t>("exclusive", 0)},
        {"reverse", args.Get<int64_t>("reverse", 0) == 0 ? 1 : 0}});
}
OPKIT_NODE_GRADIENT(CumProd) { Give(0, "CumProdGradient", {I(0), I(1), GO(0)}, Def().args()); }

}  // namespace detail

// Sums and products of the 16-bit types are float and are rounded once for each element.
template <bool kSum>
class CumulativeOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    const AxisSplit split(x.shape(), detail::AxisInTensor(Input(1), x.rank(), type()));
    Tensor* y = InferredOutput(0);
    return Visit<MatrixTypes>([&]<class T>() {
      const T* from = x.data<T>();
      T* to = y->mutable_data<T>();
      for (int64_t row = 0; row < split.rows(); ++row) Accumulate(from, to, split, row);
    });
  }

 private:
  template <class T>
  void Accumulate(const T* from, T* to, const AxisSplit& split, int64_t row) const {
    using C = detail::ComputeType<T>;
    using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, C>;  // integers wrap around
    Wide total = kSum ? Wide{0} : Wide{1};
    const int64_t first = split.Begin(row);
    for (int64_t i = 0; i < split.extent; ++i) {
      const int64_t at = first + (reverse_ ? split.extent - 1 - i : i) * split.inner;
      const auto next = static_cast<Wide>(static_cast<C>(from[at]));
      const Wide with = kSum ? total + next : total * next;
      to[at] = static_cast<T>(static_cast<C>(exclusive_ ? total : with));
      total = with;
    }
  }

  const bool exclusive_ = GetSingleArgument<int64_t>("exclusive") != 0;
  const bool reverse_ = GetSingleArgument<int64_t>("reverse") != 0;
};

// The gradient of CumProd at element i of a row is the product of all elements before i, times the
// sum, over all k from i on, of dY[k] times the elements between i and k. Both factors grow by one
// element in each step, without a division, so that elements of 0 need no rule. Computes in double.
class CumProdGradientOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor &x = DenseInput(0), &dy = DenseInput(2);
    const AxisSplit split(x.shape(), detail::AxisInTensor(Input(1), x.rank(), type()));
    Tensor* dx = InferredOutput(0);
    std::vector<double> sums(static_cast<size_t>(split.extent));
    return Visit<FloatTypes>([&]<class T>() {
      const T *values = x.data<T>(), *slopes = dy.data<T>();
      T* to = dx->mutable_data<T>();
      for (int64_t row = 0; row < split.rows(); ++row) {
        auto at = [&](int64_t i) {
          return split.Begin(row) + (reverse_ ? split.extent - 1 - i : i) * split.inner;
        };
        double sum = 0;
        for (int64_t i = split.extent - 1; i >= 0; --i) {
          // With `exclusive`, element i first counts in the output behind it.
          if (exclusive_) sums[detail::Index(i)] = sum;
          const auto value = static_cast<double>(values[at(i)]);
          const auto slope = static_cast<double>(slopes[at(i)]);
          if (!exclusive_) sums[detail::Index(i)] = sum += slope;
          sum = exclusive_ ? slope + value * sum : value * sum;
        }
        double product = 1;
        for (int64_t i = 0; i < split.extent; ++i) {
          to[at(i)] = detail::ElementOfSum<T>(product * sums[detail::Index(i)]);
          product *= static_cast<double>(values[at(i)]);
        }
      }
    });
  }

 private:
  const bool exclusive_ = GetSingleArgument<int64_t>("exclusive") != 0;
  const bool reverse_ = GetSingleArgument<int64_t>("reverse") != 0;
};

#define OPKIT_CUMULATIVE_OPERATOR(name, gradient, sum, doc)                                        \
  OPKIT_STANDARD_OPERATOR(name, gradient, CumulativeOp<sum>)                                       \
      .NumInputs(2)                                                                                \
      .InputsOnHost({1})                                                                           \
      .Input(0, "x", "any tensor of rank 1 or more", MatrixTypes::DTypes())                        \
      .Input(1, "axis", "one integer; negative ones count from the end", IndexTypes::DTypes())     \
      .Output(0, "y", "of the type and shape of x", MatrixTypes::DTypes())                         \
      .Arg<int64_t>("exclusive", "1: an element of the output is without its own element of x", 0) \
      .Arg<int64_t>("reverse", "1: from the end of the axis to its begin", 0)                      \
      .Inplace({{0, 0}})                                                                           \
      .PointwiseCost(1)                                                                            \
      .Infer(detail::InferCumulative)                                                              \
      .Doc(doc)
OPKIT_CUMULATIVE_OPERATOR(CumSum, kMaker, true,
                          "The sums of all elements up to each one, along an axis.");
OPKIT_CUMULATIVE_OPERATOR(CumProd, kMaker, false,
                          "The products of all elements up to each one, along an axis.");
#undef OPKIT_CUMULATIVE_OPERATOR

OPKIT_STANDARD_OPERATOR(CumProdGradient, kNotImplemented, CumProdGradientOp)
    .Private()
    .NumInputs(3)
    .InputsOnHost({1})
    .Input(0, "x", "of CumProd", FloatTypes::DTypes())
    .Input(1, "axis", "of CumProd", IndexTypes::DTypes())
    .Input(2, "dY", "of the shape of x", FloatTypes::DTypes())
    .Output(0, "dX", "of the shape of x", FloatTypes::DTypes())
    .Arg<int64_t>("exclusive", "of CumProd", 0)
    .Arg<int64_t>("reverse", "of CumProd", 0)
    .PointwiseCost(4)
    .Infer([](InferenceContext& c) {
      c.SetInput(2, c.input_dtype(0), c.input_shape(0));
      detail::InferCumulative(c);
    })
    .Doc("The gradient of CumProd.");

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_CUMULATIVE_HPP_

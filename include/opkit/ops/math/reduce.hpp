// ReduceSum, ReduceMean, ReduceMax and the other reductions of axes to extent 1. Sources:
// https://onnx.ai/onnx/operators/onnx__ReduceSum.html and the pages of its siblings.
#ifndef OPKIT_OPS_MATH_REDUCE_HPP_
#define OPKIT_OPS_MATH_REDUCE_HPP_

#include <cmath>

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/element_sum.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/extremes.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The order in which a reduction visits memory. Neighbouring axes that are both kept or both
// reduced are merged, so that the two kinds alternate. Axes of extent 1 are left out.
struct ReducePlan {
  struct Axis {
    int64_t extent, step;  // in elements
  };
  std::vector<Axis> kept, reduced;  // outermost first
  bool reduces_last = false;        // true if the innermost axis, of step 1, is reduced
  int64_t outputs = 1, count = 1;   // elements of the output, and input elements for each of them

  ReducePlan() = default;
  ReducePlan(const Shape& shape, const std::vector<char>& mask) {
    const Dims step = shape.DenseStrides();
    int before = -1;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const bool reduce = mask[detail::Index(axis)];
      (reduce ? count : outputs) *= shape[axis];
      if (shape[axis] == 1) continue;
      std::vector<Axis>& axes = reduce ? reduced : kept;
      if (before == reduce)
        axes.back() = {axes.back().extent * shape[axis], step[axis]};
      else
        axes.push_back({shape[axis], step[axis]});
      before = reduce;
    }
    reduces_last = before == 1;
  }

  // Calls f(offset) for every position of `axes`, in order.
  template <class F>
  static void Walk(const Axis* axes, size_t count, int64_t offset, F&& f) {
    if (count == 0) return f(offset);
    for (int64_t i = 0; i < axes->extent; ++i)
      Walk(axes + 1, count - 1, offset + i * axes->step, f);
  }
  // Returns the offset of position `index`, a row-major number along the first `count` axes.
  static int64_t Offset(const std::vector<Axis>& axes, size_t count, int64_t index) {
    int64_t offset = 0;
    for (size_t i = count; i-- > 0; index /= axes[i].extent)
      offset += index % axes[i].extent * axes[i].step;
    return offset;
  }
};

// The base of the kernels of all reductions. ReduceOpBase is the base on the CPU.
template <class Context>
class ReduceOperatorOn : public StandardOperatorOn<Context> {
 public:
  using StandardOperatorOn<Context>::StandardOperatorOn;

  // Returns a mask of the axes of a tensor of this rank: 1 for reduced axes. If `axes` is empty,
  // all axes are reduced, or no axis if `noop`.
  static std::vector<char> Mask(const Dims& axes, bool noop, int rank, std::string_view op) {
    if (axes.empty()) return std::vector<char>(static_cast<size_t>(rank), noop ? 0 : 1);
    return AxisMask({axes.begin(), axes.end()}, rank, op);
  }

 protected:
  // Returns the plan for the inputs of this run. Call it once in each run, after InferredOutput.
  const ReducePlan& Plan() {
    const Tensor& data = this->Input(0);
    const Dims axes = this->HasInput(1)
                          ? IntegerList(this->Input(1, DeviceType::kCPU), "the axes of a reduction")
                          : Dims();
    if (planned_ && data.shape() == planned_shape_ && axes == planned_axes_) [[likely]]
      return plan_;
    plan_ = ReducePlan(data.shape(), Mask(axes, noop_, data.rank(), this->type()));
    planned_shape_ = data.shape();
    planned_axes_ = axes;
    planned_ = true;
    return plan_;
  }

 private:
  const bool noop_ = this->template GetSingleArgument<int64_t>("noop_with_empty_axes") != 0;
  bool planned_ = false;
  ReducePlan plan_;
  Shape planned_shape_;
  Dims planned_axes_;
};
using ReduceOpBase = ReduceOperatorOn<CPUContext>;

namespace detail {

// The element types of ReduceMax and ReduceMin.
using ReduceOrderTypes = ElementTypes<float, double, float16, bfloat16, int32_t, int64_t, uint32_t,
                                      uint64_t, int8_t, uint8_t, bool>;

// The reductions of elements of type T: Start() returns the initial value, Add takes an element,
// Merge takes the value of other elements, Finish returns the result. Sums of floating-point
// numbers are of type Real; sums of integers wrap around. CheckCount throws if the reduction of
// `count` elements is not defined.
struct AnyCount {
  static void CheckCount(int64_t) {}
};
template <class T, class Real>
struct ReduceAsSum : AnyCount {
  using Sum = SumType<T, Real>;
  OPKIT_HOST_DEVICE static Sum Start() { return 0; }
  OPKIT_HOST_DEVICE static void Add(Sum& sum, T x) { sum += static_cast<Sum>(x); }
  OPKIT_HOST_DEVICE static void Merge(Sum& sum, Sum other) { sum += other; }
  OPKIT_HOST_DEVICE static Sum Finish(Sum sum, int64_t) { return sum; }
};
template <class T, class Real>
struct ReduceAsProd : ReduceAsSum<T, Real> {
  using Sum = SumType<T, Real>;
  OPKIT_HOST_DEVICE static Sum Start() { return 1; }
  OPKIT_HOST_DEVICE static void Add(Sum& product, T x) { product *= static_cast<Sum>(x); }
  OPKIT_HOST_DEVICE static void Merge(Sum& product, Sum other) { product *= other; }
};
template <class T, class Real>
struct ReduceAsSumSquare : ReduceAsSum<T, Real> {
  using Sum = SumType<T, Real>;
  OPKIT_HOST_DEVICE static void Add(Sum& sum, T x) {
    sum += static_cast<Sum>(x) * static_cast<Sum>(x);
  }
};
template <class T, class Real>
struct ReduceAsL1 : ReduceAsSum<T, Real> {
  using Sum = SumType<T, Real>;
  OPKIT_HOST_DEVICE static void Add(Sum& sum, T x) {
    x < T(0) ? sum -= static_cast<Sum>(x) : sum += static_cast<Sum>(x);
  }
};
// Can hold the sum of all integers of a tensor of any type.
__extension__ using WideSum = __int128;
template <class T, class Real>
struct ReduceAsMean {
  using Sum = std::conditional_t<std::is_integral_v<T>, WideSum, Real>;
  static void CheckCount(int64_t count) {
    if (std::is_integral_v<T> && count == 0)
      Throw(ErrorCode::kInvalidArgument,
            "ReduceMean: the mean of no integers is not defined; the reduced axes are empty");
  }
  OPKIT_HOST_DEVICE static Sum Start() { return 0; }
  OPKIT_HOST_DEVICE static void Add(Sum& sum, T x) { sum += static_cast<Sum>(x); }
  OPKIT_HOST_DEVICE static void Merge(Sum& sum, Sum other) { sum += other; }
  OPKIT_HOST_DEVICE static auto Finish(Sum sum, int64_t count) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(sum / count);  // towards zero
    else
      return sum / static_cast<Real>(count);
  }
};
// ReduceAsL2, ReduceAsLogSum and ReduceAsLogSumExp compute in Real, also for integers.
template <class T, class Real>
struct ReduceAsL2 : ReduceAsSumSquare<Real, Real> {
  OPKIT_HOST_DEVICE static Real Finish(Real sum, int64_t) { return std::sqrt(sum); }
};
template <class T, class Real>
struct ReduceAsLogSum : ReduceAsSum<Real, Real> {
  OPKIT_HOST_DEVICE static Real Finish(Real sum, int64_t) { return std::log(sum); }
};
// Sums exp(x - largest element so far), so that no term overflows.
template <class T, class Real>
struct ReduceAsLogSumExp : AnyCount {
  struct Sum {
    Real largest, sum;
  };
  OPKIT_HOST_DEVICE static Sum Start() { return {-std::numeric_limits<Real>::infinity(), 0}; }
  OPKIT_HOST_DEVICE static void Add(Sum& all, T element) {
    Merge(all, {static_cast<Real>(element), 1});
  }
  OPKIT_HOST_DEVICE static void Merge(Sum& all, Sum other) {
    if (other.largest == all.largest)
      all.sum += other.sum;  // avoids the difference, which is a NaN for infinities
    else if (other.largest > all.largest)
      all = {other.largest, all.sum * std::exp(all.largest - other.largest) + other.sum};
    else
      all.sum += other.sum * std::exp(other.largest - all.largest);
  }
  OPKIT_HOST_DEVICE static Real Finish(Sum all, int64_t count) {
    return count == 0 ? all.largest : all.largest + std::log(all.sum);
  }
};
// Maximum or minimum. Without elements the result is the identity: an infinity if T has one, else
// the limit of T.
template <bool kMax>
struct ReduceAsExtreme {
  template <class T, class Real>
  struct Of : AnyCount {
    using Sum = T;
    OPKIT_HOST_DEVICE static T Start() {
      using Limits = std::numeric_limits<T>;
      if constexpr (std::is_same_v<T, bool>) {
        return !kMax;
      } else if constexpr (std::is_integral_v<T>) {
        return kMax ? (Limits::min)() : (Limits::max)();
      } else {
        const float infinity = std::numeric_limits<float>::infinity();
        return static_cast<T>(kMax ? -infinity : infinity);
      }
    }
    OPKIT_HOST_DEVICE static void Add(Sum& best, T x) {
      best = kMax ? LargerOf(x, best) : SmallerOf(x, best);
    }
    OPKIT_HOST_DEVICE static void Merge(Sum& best, T other) { Add(best, other); }
    OPKIT_HOST_DEVICE static Sum Finish(Sum best, int64_t) { return best; }
  };
};

// The base of the gradients of reductions.
class ReductionGradient : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;

 protected:
  // Returns the name of `reduced`, of the shape of the output, with each element copied to the
  // elements of the data that are reduced to it.
  std::string Spread(const std::string& reduced) {
    return Node("ReduceGradient", {I(0), Axes(), reduced}, SpreadArgs());
  }
  void GiveSpread(const std::string& reduced, bool mean = false) {
    Arguments args = SpreadArgs();
    if (mean) args.Set("mean", 1);
    Give(0, "ReduceGradient", {I(0), Axes(), reduced}, std::move(args));
  }
  // Returns the name of another reduction of `data` along the axes of this node.
  std::string Reduce(const std::string& op, const std::string& data) {
    return Node(op, {data, Axes()}, Def().args());
  }

 private:
  std::string Axes() const { return Def().inputs().size() > 1 ? I(1) : ""; }
  Arguments SpreadArgs() const {
    Arguments args;
    if (const int64_t noop = Def().args().Get<int64_t>("noop_with_empty_axes", 0))
      args.Set("noop_with_empty_axes", noop);
    return args;
  }
};
#define OPKIT_REDUCTION_GRADIENT(op)                    \
  class op##Gradient final : public ReductionGradient { \
    using ReductionGradient::ReductionGradient;         \
    void Make() override;                               \
  };                                                    \
  OPKIT_REGISTER_GRADIENT(op, op##Gradient);            \
  inline void op##Gradient::Make()

OPKIT_REDUCTION_GRADIENT(ReduceSum) { GiveSpread(GO(0)); }
OPKIT_REDUCTION_GRADIENT(ReduceMean) { GiveSpread(GO(0), true); }
// Divides the product by the element if no element is 0. Otherwise the derivative with respect to
// an only 0 is the product of the other elements, and all others are 0.
OPKIT_REDUCTION_GRADIENT(ReduceProd) {
  const std::string zero = Node("Equal", {I(0), Number(0, I(0))});
  const std::string others = Node("Where", {zero, Number(1, I(0)), I(0)});
  const std::string zeros = Reduce("ReduceSum", Node("CastLike", {zero, I(0)}));
  const std::string single = Node("Equal", {zeros, Number(1, zeros)});
  const std::string product = Node("Mul", {GO(0), Reduce("ReduceProd", others)});
  const std::string quotient = Node("Div", {Spread(Node("Mul", {GO(0), O(0)})), others});
  Give(0, "Where", {zero, Spread(Masked(single, product)), quotient});
}
OPKIT_REDUCTION_GRADIENT(ReduceL1) { Give(0, "Mul", {Spread(GO(0)), Node("Sign", {I(0)})}); }
// The derivative of a root of 0 is taken as 0.
OPKIT_REDUCTION_GRADIENT(ReduceL2) {
  const std::string positive = Node("Greater", {O(0), Number(0, O(0))});
  Give(0, "Mul", {Spread(Masked(positive, Node("Div", {GO(0), O(0)}))), I(0)});
}
OPKIT_REDUCTION_GRADIENT(ReduceSumSquare) {
  Give(0, "Mul", {Spread(GO(0)), Node("Add", {I(0), I(0)})});
}
OPKIT_REDUCTION_GRADIENT(ReduceLogSum) { GiveSpread(Node("Div", {GO(0), Node("Exp", {O(0)})})); }
OPKIT_REDUCTION_GRADIENT(ReduceLogSumExp) {
  Give(0, "Mul", {Spread(GO(0)), Node("Exp", {Node("Sub", {I(0), Spread(O(0))})})});
}
#undef OPKIT_REDUCTION_GRADIENT

// The gradient of ReduceMax and ReduceMin. Elements that are equal to the result share its
// gradient.
class ReduceExtremeGradient final : public ReductionGradient {
 public:
  using ReductionGradient::ReductionGradient;

 private:
  void Make() override {
    const std::string mask = Node("Equal", {I(0), Spread(O(0))});
    const std::string count = Reduce("ReduceSum", Node("CastLike", {mask, I(0)}));
    const std::string share = Spread(Node("Div", {GO(0), count}));
    Give(0, "Where", {mask, share, Number(0, share)});
  }
};
OPKIT_REGISTER_GRADIENT(ReduceMax, ReduceExtremeGradient);
OPKIT_REGISTER_GRADIENT(ReduceMin, ReduceExtremeGradient);

inline void InferReduce(InferenceContext& c) {
  const DType dtype = c.input_dtype(0);
  const SymbolicShape& x = c.input_shape(0);
  const bool keep = c.Arg<int64_t>("keepdims") != 0;
  const bool noop = c.Arg<int64_t>("noop_with_empty_axes") != 0;
  const std::string what = "the axes of " + c.def().type();
  std::optional<Dims> axes = c.HasInput(1) ? KnownIntegerList(c, 1, what) : Dims();
  Dim named = 0;
  if (c.HasInput(1)) named = IntegerListSize(c, 1, what);
  if (!axes && named == Dim(0)) axes = Dims();
  if (!x.has_rank()) return c.SetOutput(0, dtype, {});
  if (!axes) {
    // The axes are unknown. Their number may be known, and then it is not 0.
    if (keep) return c.SetOutput(0, dtype, SymbolicShape::OfRank(x.rank()));
    if (named.is_known() && named.value() > x.rank())
      Throw(ErrorCode::kInvalidArgument, c.def().type(), ": 'axes' has ", named.value(),
            " elements, but the tensor has rank ", x.rank());
    return c.SetOutput(0, dtype,
                       named.is_known()
                           ? SymbolicShape::OfRank(x.rank() - static_cast<int>(named.value()))
                           : SymbolicShape());
  }
  const std::vector<char> mask = ReduceOpBase::Mask(*axes, noop, x.rank(), c.def().type());
  std::vector<Dim> dims;
  for (int axis = 0; axis < x.rank(); ++axis)
    if (!mask[Index(axis)])
      dims.push_back(x[axis]);
    else if (keep)
      dims.push_back(1);
  c.SetOutput(0, dtype, SymbolicShape(std::move(dims)));
}

// Fills the schema of a reduction.
inline void FillReduceSchema(OpSchema& schema, const char* doc, uint64_t flops,
                             const std::vector<DType>& dtypes) {
  schema.Doc(doc)
      .NumInputs(1, 2)
      .InputsOnHost({1})
      .Input(0, "data", "a tensor", dtypes)
      .Input(1, "axes",
             "the axes to reduce, negative ones from the last; optional: all axes, or none with "
             "noop_with_empty_axes",
             IndexTypes::DTypes())
      .Output(0, "reduced", "of the type of the data")
      .Arg<int64_t>("keepdims", "1: reduced axes stay with an extent of 1; 0: they go", 1)
      .Arg<int64_t>("noop_with_empty_axes", "1: no axes are reduced where none is named", 0)
      .Cost([flops](auto&, auto& inputs, auto& outputs) {
        return TrafficCost(flops * OpSchema::Elements(inputs[0]), {inputs[0]}, outputs);
      })
      .Infer(&InferReduce);
}

// Throws kInvalidArgument unless there is a gradient for each output.
inline void CheckReducedGradient(const ReducePlan& plan, const Tensor& gradient) {
  if (gradient.numel() != plan.outputs)
    Throw(ErrorCode::kInvalidArgument, "ReduceGradient: the gradient is ", gradient,
          ", expected the ", plan.outputs, " elements that the data is reduced to");
}

}  // namespace detail

// The reference kernel of all reductions. `Kind` is one of the reductions above, `Types` the
// element types.
template <template <class, class> class Kind, class Types>
class ReduceOp final : public ReduceOpBase {
 public:
  using ReduceOpBase::ReduceOpBase;

  bool RunOnDevice() override {
    return Visit<Types>([&]<class T>() {
      using Fold = Kind<T, double>;
      Tensor* out = InferredOutput(0);
      const ReducePlan& plan = Plan();
      Fold::CheckCount(plan.count);
      const Tensor& x = DenseInput(0);
      const T* in = x.data<T>();
      T* y = out->mutable_data<T>();
      ParallelFor(plan.outputs, [&](int64_t o) {
        auto sum = Fold::Start();
        if (plan.count > 0)
          ReducePlan::Walk(plan.reduced.data(), plan.reduced.size(),
                           ReducePlan::Offset(plan.kept, plan.kept.size(), o),
                           [&](int64_t at) { Fold::Add(sum, in[at]); });
        y[o] = detail::ElementOfSum<T>(Fold::Finish(sum, plan.count));
      });
    });
  }
};

// Copies the gradient of each output element to the input elements that were reduced to it. For a
// mean, divides the gradient by their number.
class ReduceGradientOp final : public ReduceOpBase {
 public:
  using ReduceOpBase::ReduceOpBase;

  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      Tensor* out = InferredOutput(0);
      const ReducePlan& plan = Plan();
      const Tensor& gradient = DenseInput(2);
      detail::CheckReducedGradient(plan, gradient);
      const T* from = gradient.data<T>();
      T* to = out->mutable_data<T>();
      if (plan.count == 0) return;
      const double factor = mean_ ? 1 / static_cast<double>(plan.count) : 1;
      ParallelFor(plan.outputs, [&](int64_t o) {
        const T each = detail::ElementOfSum<T>(static_cast<double>(from[o]) * factor);
        ReducePlan::Walk(plan.reduced.data(), plan.reduced.size(),
                         ReducePlan::Offset(plan.kept, plan.kept.size(), o),
                         [&](int64_t at) { to[at] = each; });
      });
    });
  }

 private:
  const bool mean_ = GetSingleArgument<int64_t>("mean") != 0;
};

#define OPKIT_REDUCTION(name, gradient, Kind, Types, flops, doc)                                  \
  OPKIT_STANDARD_OPERATOR(name, gradient, ReduceOp<Kind, Types>).FillUsing([](OpSchema& schema) { \
    detail::FillReduceSchema(schema, doc, flops, Types::DTypes());                                \
  })

OPKIT_REDUCTION(ReduceSum, kMaker, detail::ReduceAsSum, MatrixTypes, 1,
                "The sum of the elements along some axes; 0 of none.");
OPKIT_REDUCTION(
    ReduceMean, kMaker, detail::ReduceAsMean, MatrixTypes, 1,
    "The mean of the elements along some axes, towards zero for integers; NaN of none.");
OPKIT_REDUCTION(ReduceProd, kMaker, detail::ReduceAsProd, MatrixTypes, 1,
                "The product of the elements along some axes; 1 of none.");
OPKIT_REDUCTION(ReduceMax, kMaker, detail::ReduceAsExtreme<true>::Of, detail::ReduceOrderTypes, 1,
                "The largest element along some axes, NaN where there is one; of none, the "
                "smallest number of the type, minus infinity where it has that.");
OPKIT_REDUCTION(ReduceMin, kMaker, detail::ReduceAsExtreme<false>::Of, detail::ReduceOrderTypes, 1,
                "The smallest element along some axes, NaN where there is one; of none, the "
                "largest number of the type, infinity where it has that.");
OPKIT_REDUCTION(ReduceL1, kMaker, detail::ReduceAsL1, MatrixTypes, 2,
                "The sum of the absolute values along some axes; 0 of none.");
OPKIT_REDUCTION(ReduceL2, kMaker, detail::ReduceAsL2, MatrixTypes, 2,
                "The square root of the sum of the squares along some axes; 0 of none.");
OPKIT_REDUCTION(ReduceSumSquare, kMaker, detail::ReduceAsSumSquare, MatrixTypes, 2,
                "The sum of the squares along some axes; 0 of none.");
OPKIT_REDUCTION(ReduceLogSum, kMaker, detail::ReduceAsLogSum, MatrixTypes, 1,
                "The logarithm of the sum along some axes; minus infinity of none.");
OPKIT_REDUCTION(ReduceLogSumExp, kMaker, detail::ReduceAsLogSumExp, MatrixTypes, 4,
                "log(sum(exp(x))) along some axes, without overflow; minus infinity of none.");
#undef OPKIT_REDUCTION

namespace detail {

// Sums what was copied.
OPKIT_NODE_GRADIENT(ReduceGradient) {
  const bool mean = Def().args().Get<int64_t>("mean", 0) != 0;
  const auto noop = Def().args().Get<int64_t>("noop_with_empty_axes", 0);
  const std::string sums =
      Node(mean ? "ReduceMean" : "ReduceSum", {GO(0), I(1)}, {{"noop_with_empty_axes", noop}});
  Give(2, "Reshape", {sums, Node("Shape", {I(2)})}, {{"allowzero", 1}});
}

}  // namespace detail

OPKIT_STANDARD_OPERATOR(ReduceGradient, kMaker, ReduceGradientOp)
    .Private()
    .Doc(
        "Copies each element of the gradient to the elements of the data that a reduction reduces "
        "to it: the gradient of ReduceSum, and of ReduceMean with mean=1.")
    .NumInputs(3)
    .InputsOnHost({1})
    .Input(0, "data", "as it was reduced; only its shape is read", FloatTypes::DTypes())
    .Input(1, "axes", "as they were reduced; optional", IndexTypes::DTypes())
    .Input(2, "gradient", "of the result", FloatTypes::DTypes())
    .Output(0, "Y", "as the data")
    .Arg<int64_t>("noop_with_empty_axes", "as they were reduced", 0)
    .Arg<int64_t>("mean", "1: of ReduceMean, 0: of ReduceSum", 0)
    .Cost([](auto&, auto& inputs, auto& outputs) { return TrafficCost(0, {inputs[2]}, outputs); })
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
      c.SetInput(2, c.input_dtype(0), {});
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_REDUCE_HPP_

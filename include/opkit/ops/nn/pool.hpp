// AveragePool, LpPool, MaxPool and global forms: compute the mean, the norm or the largest element
// of each window, or of the whole image, channel by channel. Sources:
// https://onnx.ai/onnx/operators/onnx__AveragePool.html and others.
#ifndef OPKIT_OPS_NN_POOL_HPP_
#define OPKIT_OPS_NN_POOL_HPP_

#include <cmath>
#include <limits>

#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/window.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the shape of a pool's output, which has no rank if the input has none.
inline SymbolicShape PoolOutputShape(InferenceContext& c) {
  const WindowAttributes attributes(c.def());
  if (attributes.kernel_shape.empty())
    Throw(ErrorCode::kInvalidArgument, attributes.op,
          ": kernel_shape is empty, expected one extent for each spatial axis");
  const SymbolicShape x = c.input_shape(0);
  SymbolicShape y;
  if (x.has_rank()) {
    if (x.rank() < 3)
      Throw(ErrorCode::kInvalidArgument, attributes.op, ": X is ", ToString(x),
            ", expected a batch, channels and at least one spatial axis");
    attributes.CheckRank(x.rank() - 2);
    y = x;
    for (int axis = 0; axis < x.rank() - 2; ++axis)
      y[axis + 2] = attributes.OutputDim(axis, x[axis + 2], attributes.kernel_shape[Index(axis)]);
  }
  return y;
}
// Infers output 0 and, if the node has it, output 1, the indices.
inline void InferPool(InferenceContext& c) {
  const SymbolicShape y = PoolOutputShape(c);
  c.SetOutput(0, c.input_dtype(0), y);
  if (c.num_outputs() > 1) c.SetOutput(1, DType::kInt64, y);
}
inline void InferGlobalPool(InferenceContext& c) {
  const SymbolicShape x = c.input_shape(0);
  if (!x.has_rank()) return c.SetOutput(0, c.input_dtype(0), {});
  if (x.rank() < 2)
    Throw(ErrorCode::kInvalidArgument, c.def().type(), ": X is ", ToString(x),
          ", expected a batch and channels");
  SymbolicShape y = x;
  for (int axis = 2; axis < x.rank(); ++axis) {
    if (x[axis] == Dim(0))
      Throw(ErrorCode::kInvalidArgument, c.def().type(), ": X is ", ToString(x),
            ", expected at least one element in each channel");
    y[axis] = 1;
  }
  c.SetOutput(0, c.input_dtype(0), y);
}
// Returns the number of elements of all windows, including pads, of a pool with the output `y`.
inline uint64_t WindowElements(const OperatorDef& def, const TensorInfo& y) {
  uint64_t elements = OpSchema::Elements(y);
  for (const int64_t extent : def.args().Get<std::vector<int64_t>>("kernel_shape", {}))
    elements *= static_cast<uint64_t>(extent);
  return elements;
}
// Returns the cost of a pool: one operation for each element of each window, including pads.
inline OpCost PoolCost(const OperatorDef& def, const std::vector<TensorInfo>& inputs,
                       const std::vector<TensorInfo>& outputs) {
  return TrafficCost(WindowElements(def, outputs[0]), inputs, outputs);
}

// Returns the least value of T, the initial value of a maximum.
template <class T>
OPKIT_HOST_DEVICE T LeastValue() {
  if constexpr (std::is_integral_v<T>)
    return std::numeric_limits<T>::lowest();
  else
    return T(-std::numeric_limits<float>::infinity());
}
// True if `value` is above `than` or is a NaN. So a NaN becomes the largest element and stays it.
template <class T>
OPKIT_HOST_DEVICE bool IsLarger(T value, T than) {
  return value > than || value != value;
}

// The reductions of the global pools, over the elements of one channel.
struct ChannelMean {
  template <class T>
  static T Of(const T* in, int64_t pixels) {
    double sum = 0;
    for (int64_t i = 0; i < pixels; ++i) sum += static_cast<double>(in[i]);
    return static_cast<T>(sum / static_cast<double>(pixels));
  }
};
struct ChannelMax {
  template <class T>
  static T Of(const T* in, int64_t pixels) {
    T largest = LeastValue<T>();
    for (int64_t i = 0; i < pixels; ++i)
      if (IsLarger(in[i], largest)) largest = in[i];
    return largest;
  }
};

using MaxPoolTypes = ElementTypes<float, double, float16, bfloat16, int8_t, uint8_t>;

// Declares the attributes that all pools have.
inline void FillPoolAttributes(OpSchema& schema) {
  FillWindowSchema(schema, kAutoPadDoc, kPadsDoc);
  schema
      .Arg<int64_t>("ceil_mode",
                    "1: the number of windows is rounded up; one that would start in the pad at "
                    "the end is left out",
                    0)
      .RequiredArg<std::vector<int64_t>>("kernel_shape", "extents of a window");
}
// Fills the parts that are the same in the schemas of AveragePool and MaxPool.
inline void FillPoolSchema(OpSchema& schema) {
  FillPoolAttributes(schema);
  schema
      .Output(0, "Y",
              "[N, C, ...], spatial extents as kernel, strides, dilations and pads make them")
      .Infer(&InferPool)
      .Cost(&PoolCost);
}
inline void FillGlobalPoolSchema(OpSchema& schema) {
  schema.Input(0, "X", "[N, C, D1, ..., Dn]", FloatTypes::DTypes())
      .Output(0, "Y", "[N, C, 1, ..., 1]")
      .Infer(&InferGlobalPool)
      .Flops([](auto& c) { return OpSchema::Elements(c.input(0)); });
}

// Throws kInvalidArgument for an exponent of a norm below 1.
inline void CheckNormExponent(const std::string& op, int64_t p) {
  if (p < 1) Throw(ErrorCode::kInvalidArgument, op, ": p is ", p, ", expected a number from 1 on");
}

// The pools that the operator PoolGradient has the gradient of, as its attribute `function` names
// them.
enum class PoolFunction : uint8_t { kAveragePool, kLpPool, kMaxPool };

// The gradient of AveragePool, LpPool and MaxPool.
class PoolGradient final : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;
  bool CopyArguments() const override { return true; }

 private:
  void Make() override {
    if (HasGO(0)) Give(0, "PoolGradient", {I(0), GO(0)}, {{"function", Def().type()}});
  }
};
OPKIT_REGISTER_GRADIENT(AveragePool, PoolGradient);
OPKIT_REGISTER_GRADIENT(LpPool, PoolGradient);
OPKIT_REGISTER_GRADIENT(MaxPool, PoolGradient);

OPKIT_NODE_GRADIENT(GlobalAveragePool) {
  Give(0, "ReduceGradient", {I(0), AxesFrom(2, I(0)), GO(0)},
       {{"mean", 1}, {"noop_with_empty_axes", 1}});
}
// With p the exponent: sign(x) |x|^(p-1) dy / y^(p-1), 0 where y is 0.
OPKIT_NODE_GRADIENT(GlobalLpPool) {
  const std::string exponent =
      Number(static_cast<float>(Def().args().Get<int64_t>("p", 2) - 1), I(0));
  const std::string positive = Node("Greater", {O(0), Number(0, O(0))});
  const std::string quotient = Node("Div", {GO(0), Node("Pow", {O(0), exponent})});
  const std::string power = Node("Pow", {Node("Abs", {I(0)}), exponent});
  const std::string signed_power = Node("Mul", {Node("Sign", {I(0)}), power});
  Give(0, "Mul", {signed_power, Masked(positive, quotient)});
}
// Elements that are equal to the largest one share its gradient.
OPKIT_NODE_GRADIENT(GlobalMaxPool) {
  const std::string mask = Node("Equal", {I(0), O(0)});
  const std::string count = Node("ReduceSum", {Node("CastLike", {mask, I(0)}), AxesFrom(2, I(0))},
                                 {{"noop_with_empty_axes", 1}});
  const std::string share = Node("Div", {GO(0), count});
  Give(0, "Where", {mask, share, Number(0, share)});
}

}  // namespace detail

// The base of the kernels of the pools. PoolOpBase is the base on the CPU.
template <class Context>
class PoolOperatorOn : public StandardOperatorOn<Context> {
 public:
  using StandardOperatorOn<Context>::StandardOperatorOn;

 protected:
  // Returns the windows along each spatial axis. The input's shape must have passed inference.
  static WindowAxes AxesOf(const WindowAttributes& attributes, const Shape& x) {
    WindowAxes axes;
    for (int axis = 0; axis < x.rank() - 2; ++axis)
      axes.push_back(
          attributes.At(axis, x[axis + 2], attributes.kernel_shape[detail::Index(axis)]));
    return axes;
  }
  // Calls f(taps, input pixels, output pixel, number of output pixels) for every window of a
  // channel, on the threads of the current pool.
  template <class F>
  static void ForEachWindow(const WindowAxes& axes, F f) {
    int64_t input_pixels = 1, output_pixels = 1;
    for (const WindowAxis& axis : axes) {
      input_pixels *= axis.input;
      output_pixels *= axis.output;
    }
    ParallelForRange(output_pixels, kAutoGrain, [&](int64_t begin, int64_t end) {
      WindowTaps taps(axes);
      for (int64_t pixel = begin; pixel < end; ++pixel)
        f(taps.At(pixel), input_pixels, pixel, output_pixels);
    });
  }

  const WindowAttributes attributes_{this->def()};
};
using PoolOpBase = PoolOperatorOn<CPUContext>;

// The base of the kernels of AveragePool.
class AveragePoolOpBase : public PoolOpBase {
 public:
  using PoolOpBase::PoolOpBase;

 protected:
  // Returns the divisor of the sum for output pixel `o`: 0 if the window has only pads and pads do
  // not count.
  int64_t Divisor(const WindowAxes& axes, int64_t o) const {
    int64_t count = 1;
    for (size_t axis = axes.size(); axis-- > 0;) {
      const WindowAxis& along = axes[axis];
      count *= along.Divisor(o % along.output, count_include_pad_);
      o /= along.output;
    }
    return count;
  }

  const bool count_include_pad_ = GetSingleArgument<int64_t>("count_include_pad") != 0;
};

class AveragePoolOp final : public AveragePoolOpBase {
 public:
  using AveragePoolOpBase::AveragePoolOpBase;

  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      const Tensor& x = DenseInput(0);
      Tensor* y = InferredOutput(0);
      if (y->numel() == 0) return;
      const int64_t planes = x.dim(0) * x.dim(1);
      const WindowAxes axes = AxesOf(attributes_, x.shape());
      const T* in = x.data<T>();
      T* out = y->mutable_data<T>();
      ForEachWindow(axes, [&](const std::vector<WindowTap>& taps, int64_t input_pixels,
                              int64_t pixel, int64_t output_pixels) {
        const int64_t divisor = Divisor(axes, pixel);
        for (int64_t plane = 0; plane < planes; ++plane) {
          double sum = 0;
          for (const WindowTap& tap : taps)
            sum += static_cast<double>(in[plane * input_pixels + tap.input]);
          out[plane * output_pixels + pixel] =
              static_cast<T>(divisor == 0 ? 0 : sum / static_cast<double>(divisor));
        }
      });
    });
  }
};

// Computes the norm of each window: the p-th root of the sum of the p-th powers of the magnitudes.
class LpPoolOp final : public PoolOpBase {
 public:
  LpPoolOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : PoolOpBase(def, ws, config) {
    detail::CheckNormExponent(type(), p_);
  }
  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      const Tensor& x = DenseInput(0);
      Tensor* y = InferredOutput(0);
      if (y->numel() == 0) return;
      const int64_t planes = x.dim(0) * x.dim(1);
      const T* in = x.data<T>();
      T* out = y->mutable_data<T>();
      const auto p = static_cast<double>(p_);
      ForEachWindow(AxesOf(attributes_, x.shape()), [&](const std::vector<WindowTap>& taps,
                                                        int64_t input_pixels, int64_t pixel,
                                                        int64_t output_pixels) {
        for (int64_t plane = 0; plane < planes; ++plane) {
          double sum = 0;
          for (const WindowTap& tap : taps) {
            const auto value = static_cast<double>(in[plane * input_pixels + tap.input]);
            sum += std::pow(std::fabs(value), p);
          }
          out[plane * output_pixels + pixel] = static_cast<T>(std::pow(sum, 1 / p));
        }
      });
    });
  }

 private:
  const int64_t p_ = GetSingleArgument<int64_t>("p");
};

// The base of the kernels of MaxPool. The second output holds the index in X of each largest
// element. MaxPoolOpBase is the base on the CPU.
template <class Context>
class MaxPoolOn : public PoolOperatorOn<Context> {
 public:
  MaxPoolOn(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : PoolOperatorOn<Context>(def, ws, config) {
    const auto order = this->template GetSingleArgument<int64_t>("storage_order");
    if (order != 0 && order != 1)
      Throw(ErrorCode::kInvalidArgument, "MaxPool: storage_order is ", order,
            ", expected 0 (row-major) or 1 (column-major)");
    column_major_ = order == 1;
  }

 protected:
  // Converts a row-major index within a channel to the node's storage order.
  int64_t StoredIndex(const WindowAxes& axes, int64_t index) const {
    if (!column_major_) return index;
    int64_t stored = 0;
    for (size_t axis = axes.size(); axis-- > 0;) {
      int64_t step = 1;
      for (size_t before = 0; before < axis; ++before) step *= axes[before].input;
      stored += index % axes[axis].input * step;
      index /= axes[axis].input;
    }
    return stored;
  }

  bool column_major_ = false;
};
using MaxPoolOpBase = MaxPoolOn<CPUContext>;

class MaxPoolOp final : public MaxPoolOpBase {
 public:
  using MaxPoolOpBase::MaxPoolOpBase;

  bool RunOnDevice() override {
    return Visit<detail::MaxPoolTypes>([&]<class T>() {
      const Tensor& x = DenseInput(0);
      Tensor* y = InferredOutput(0);
      Tensor* indices = HasOutput(1) ? InferredOutput(1) : nullptr;
      if (y->numel() == 0) return;
      const int64_t planes = x.dim(0) * x.dim(1);
      const WindowAxes axes = AxesOf(attributes_, x.shape());
      const T* in = x.data<T>();
      T* out = y->mutable_data<T>();
      int64_t* where = indices ? indices->mutable_data<int64_t>() : nullptr;
      ForEachWindow(axes, [&](const std::vector<WindowTap>& taps, int64_t input_pixels,
                              int64_t pixel, int64_t output_pixels) {
        for (int64_t plane = 0; plane < planes; ++plane) {
          T largest = detail::LeastValue<T>();
          int64_t index = taps.empty() ? 0 : taps[0].input;
          for (const WindowTap& tap : taps) {
            const T value = in[plane * input_pixels + tap.input];
            if (!detail::IsLarger(value, largest)) continue;
            largest = value;
            index = tap.input;
          }
          out[plane * output_pixels + pixel] = largest;
          if (where)
            where[plane * output_pixels + pixel] = plane * input_pixels + StoredIndex(axes, index);
        }
      });
    });
  }
};

// Adds the gradient of each window to the gradients of its elements. For a maximum, that of the
// first largest element gets it.
class PoolGradientOp final : public AveragePoolOpBase {
 public:
  using AveragePoolOpBase::AveragePoolOpBase;

  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      const Tensor &x = DenseInput(0), &dy = DenseInput(1);
      Tensor* dx = InferredOutput(0);
      if (dx->numel() == 0) return;
      const int64_t planes = x.dim(0) * x.dim(1);
      const int64_t input_pixels = x.numel() / planes, output_pixels = dy.numel() / planes;
      const WindowAxes axes = AxesOf(attributes_, x.shape());
      const T *in = x.data<T>(), *gradient = dy.data<T>();
      T* out = dx->mutable_data<T>();
      ParallelForRange(planes, kAutoGrain, [&](int64_t begin, int64_t end) {
        WindowTaps taps(axes);
        std::vector<double> sums(static_cast<size_t>(input_pixels));
        for (int64_t plane = begin; plane < end; ++plane) {
          sums.assign(sums.size(), 0);
          for (int64_t pixel = 0; pixel < output_pixels; ++pixel)
            Add(static_cast<double>(gradient[plane * output_pixels + pixel]),
                in + plane * input_pixels, taps.At(pixel), Divisor(axes, pixel), sums);
          for (int64_t pixel = 0; pixel < input_pixels; ++pixel)
            out[plane * input_pixels + pixel] = static_cast<T>(sums[detail::Index(pixel)]);
        }
      });
    });
  }

 private:
  using Function = detail::PoolFunction;

  // Adds the gradient `dy` of one window.
  template <class T>
  void Add(double dy, const T* x, const std::vector<WindowTap>& taps, int64_t divisor,
           std::vector<double>& sums) const {
    if (function_ == Function::kAveragePool) {
      for (const WindowTap& tap : taps)
        sums[detail::Index(tap.input)] += dy / static_cast<double>(divisor);
    } else if (function_ == Function::kMaxPool) {
      T largest = detail::LeastValue<T>();
      int64_t index = taps.empty() ? 0 : taps[0].input;
      for (const WindowTap& tap : taps) {
        if (!detail::IsLarger(x[tap.input], largest)) continue;
        largest = x[tap.input];
        index = tap.input;
      }
      if (!taps.empty()) sums[detail::Index(index)] += dy;
    } else {
      double norm = 0;  // the p-th power of the norm
      for (const WindowTap& tap : taps)
        norm += std::pow(std::fabs(static_cast<double>(x[tap.input])), p_);
      if (norm == 0) return;
      const double factor = dy * std::pow(norm, 1 / p_ - 1);
      for (const WindowTap& tap : taps) {
        const auto value = static_cast<double>(x[tap.input]);
        sums[detail::Index(tap.input)] +=
            std::copysign(std::pow(std::fabs(value), p_ - 1), value) * factor;
      }
    }
  }

  const Function function_ = EnumeratorOf<Function>(type(), def().args(), "function");
  const double p_ = static_cast<double>(GetSingleArgument<int64_t>("p"));
};

// The kernel of the global pools: each output is Reduction::Of(elements of a channel, their
// number).
template <class Reduction>
class GlobalPoolOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      const Tensor& x = DenseInput(0);
      Tensor* y = InferredOutput(0);
      if (y->numel() == 0) return;
      const int64_t pixels = x.numel() / y->numel();
      const T* in = x.data<T>();
      T* out = y->mutable_data<T>();
      ParallelFor(context_, y->numel(),
                  [=](int64_t plane) { out[plane] = Reduction::Of(in + plane * pixels, pixels); });
    });
  }
};
// Computes the norm of each channel, as LpPool that of each window.
class GlobalLpPoolOp final : public StandardOperator {
 public:
  GlobalLpPoolOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : StandardOperator(def, ws, config) {
    detail::CheckNormExponent(type(), p_);
  }
  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      const Tensor& x = DenseInput(0);
      Tensor* y = InferredOutput(0);
      if (y->numel() == 0) return;
      const int64_t pixels = x.numel() / y->numel();
      const T* in = x.data<T>();
      T* out = y->mutable_data<T>();
      const auto p = static_cast<double>(p_);
      ParallelFor(context_, y->numel(), [=](int64_t plane) {
        double sum = 0;
        for (int64_t i = 0; i < pixels; ++i)
          sum += std::pow(std::fabs(static_cast<double>(in[plane * pixels + i])), p);
        out[plane] = static_cast<T>(std::pow(sum, 1 / p));
      });
    });
  }

 private:
  const int64_t p_ = GetSingleArgument<int64_t>("p");
};
using GlobalAveragePoolOp = GlobalPoolOp<detail::ChannelMean>;
using GlobalMaxPoolOp = GlobalPoolOp<detail::ChannelMax>;

OPKIT_STANDARD_OPERATOR(AveragePool, kMaker, AveragePoolOp)
    .Doc("The mean of each window, channel by channel.")
    .FillUsing(detail::FillPoolSchema)
    .Input(0, "X", "[N, C, D1, ..., Dn], n at least 1", FloatTypes::DTypes())
    .Arg<int64_t>("count_include_pad", "1: a window's elements in pads count, as zeros", 0);

OPKIT_STANDARD_OPERATOR(LpPool, kMaker, LpPoolOp)
    .Doc("The norm of each window, channel by channel: the p-th root of the sum of p-th powers.")
    .FillUsing(detail::FillPoolSchema)
    .Input(0, "X", "[N, C, D1, ..., Dn], n at least 1", FloatTypes::DTypes())
    .Arg<int64_t>("p", "the exponent, from 1 on", 2);

OPKIT_STANDARD_OPERATOR(MaxPool, kMaker, MaxPoolOp)
    .Doc("The largest element of each window, channel by channel; the first of equal ones.")
    .FillUsing(detail::FillPoolSchema)
    .NumOutputs(1, 2)
    .Input(0, "X", "[N, C, D1, ..., Dn], n at least 1", detail::MaxPoolTypes::DTypes())
    .Output(1, "Indices", "optional: where in X each element of Y was", {DType::kInt64})
    .Arg<int64_t>("storage_order",
                  "how Indices count the elements of a channel: 0 row-major, 1 column-major", 0);

OPKIT_STANDARD_OPERATOR(PoolGradient, kNotImplemented, PoolGradientOp)
    .Private()
    .Doc("The gradient of AveragePool, LpPool or MaxPool, from that of the result.")
    .FillUsing(detail::FillPoolAttributes)
    .NumInputs(2)
    .Input(0, "X", "of the pool", FloatTypes::DTypes())
    .Input(1, "dY", "of the type of X, of the shape of the pool's output")
    .Output(0, "dX", "as X")
    .Arg("function", "the type of the pool", {"AveragePool", "LpPool", "MaxPool"})
    .Arg<int64_t>("count_include_pad", "of AveragePool", 0)
    .Arg<int64_t>("p", "of LpPool", 2)
    .Infer([](InferenceContext& c) {
      c.SetInput(1, c.input_dtype(0), detail::PoolOutputShape(c));
      c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
    })
    .Cost([](auto& def, auto& inputs, auto& outputs) {
      return TrafficCost(detail::WindowElements(def, inputs[1]), inputs, outputs);
    });

OPKIT_STANDARD_OPERATOR(GlobalAveragePool, kMaker, GlobalAveragePoolOp)
    .Doc("The mean of each channel.")
    .FillUsing(detail::FillGlobalPoolSchema);

OPKIT_STANDARD_OPERATOR(GlobalLpPool, kMaker, GlobalLpPoolOp)
    .Doc("The norm of each channel: the p-th root of the sum of p-th powers.")
    .FillUsing(detail::FillGlobalPoolSchema)
    .Arg<int64_t>("p", "the exponent, from 1 on", 2);

OPKIT_STANDARD_OPERATOR(GlobalMaxPool, kMaker, GlobalMaxPoolOp)
    .Doc("The largest element of each channel.")
    .FillUsing(detail::FillGlobalPoolSchema);

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_POOL_HPP_

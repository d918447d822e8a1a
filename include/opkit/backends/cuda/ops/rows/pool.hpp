// Pools on CUDA: MaxPool, AveragePool, LpPool, their gradient, and the global pools. A thread
// computes an element; a team computes a channel of a global pool.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ROWS_POOL_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ROWS_POOL_HPP_

#include "opkit/backends/cuda/ops/cuda_operator.hpp"
#include "opkit/backends/cuda/ops/sum_type.hpp"
#include "opkit/ops/nn/pool.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/extremes.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The windows along all spatial axes, in a form that a kernel's launch copies to the device.
struct CUDAWindows {
  static constexpr int kMaxAxes = 4;

  int axes = 0;
  WindowAxis along[kMaxAxes];
  int64_t input_pixels = 1, output_pixels = 1;

  explicit CUDAWindows(const WindowAxes& windows) : axes(static_cast<int>(windows.size())) {
    if (axes > kMaxAxes)
      Throw(ErrorCode::kUnsupported, "a pool on CUDA has at most ", kMaxAxes,
            " spatial axes, and this one has ", axes);
    for (int axis = 0; axis < axes; ++axis) {
      along[axis] = windows[Index(axis)];
      input_pixels *= along[axis].input;
      output_pixels *= along[axis].output;
    }
  }

  // Calls f(index of an input pixel) for each element of window `o` that is not in a pad, in the
  // kernel's row-major order.
  template <class F>
  OPKIT_HOST_DEVICE void ForEachTap(int64_t o, F f) const {
    int64_t k[kMaxAxes], begin[kMaxAxes], end[kMaxAxes], start[kMaxAxes];
    for (int axis = axes - 1; axis >= 0; --axis) {
      const int64_t index = o % along[axis].output;
      o /= along[axis].output;
      begin[axis] = k[axis] = along[axis].KernelBegin(index);
      end[axis] = along[axis].KernelEnd(index);
      start[axis] = along[axis].Start(index);
      if (begin[axis] >= end[axis]) return;
    }
    for (;;) {
      int64_t pixel = 0;
      for (int axis = 0; axis < axes; ++axis)
        pixel = pixel * along[axis].input + start[axis] + k[axis] * along[axis].dilation;
      f(pixel);
      int axis = axes - 1;
      while (axis >= 0 && ++k[axis] == end[axis]) {
        k[axis] = begin[axis];
        --axis;
      }
      if (axis < 0) return;
    }
  }
  // Calls f(index of a window) for each window that contains an input pixel.
  template <class F>
  OPKIT_HOST_DEVICE void ForEachWindowOf(int64_t pixel, F f) const {
    int64_t k[kMaxAxes] = {}, at[kMaxAxes];
    for (int axis = axes - 1; axis >= 0; --axis) {
      at[axis] = pixel % along[axis].input + along[axis].pad_begin;
      pixel /= along[axis].input;
    }
    for (;;) {
      int64_t window = 0;
      bool is_window = true;
      for (int axis = 0; axis < axes && is_window; ++axis) {
        const int64_t start = at[axis] - k[axis] * along[axis].dilation;
        const int64_t o = start / along[axis].stride;
        is_window = start >= 0 && o * along[axis].stride == start && o < along[axis].output;
        window = window * along[axis].output + o;
      }
      if (is_window) f(window);
      int axis = axes - 1;
      while (axis >= 0 && ++k[axis] == along[axis].kernel) {
        k[axis] = 0;
        --axis;
      }
      if (axis < 0) return;
    }
  }
  // Returns the number of elements that the average of window `o` divides by.
  OPKIT_HOST_DEVICE int64_t Divisor(int64_t o, bool with_pads) const {
    int64_t count = 1;
    for (int axis = axes - 1; axis >= 0; --axis) {
      count *= along[axis].Divisor(o % along[axis].output, with_pads);
      o /= along[axis].output;
    }
    return count;
  }
};

// The first largest element of a window.
template <class T>
struct LargestOfWindow {
  T value = LeastValue<T>();
  int64_t pixel = -1;  // -1: the window has only pads

  template <class Stored>
  OPKIT_HOST_DEVICE static LargestOfWindow Of(const CUDAWindows& windows, int64_t o,
                                              const Stored* plane) {
    LargestOfWindow largest;
    windows.ForEachTap(o, [&](int64_t pixel) {
      const T value = static_cast<T>(plane[pixel]);
      if (largest.pixel >= 0 && !IsLarger(value, largest.value)) return;
      largest = {value, pixel};
    });
    return largest;
  }
};

template <class T>
struct CUDAMaxPoolLoop {
  const T* x;
  T* y;
  int64_t* indices;  // null if the node has none
  CUDAWindows windows;
  bool column_major;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t plane = i / windows.output_pixels;
    const auto largest = LargestOfWindow<ComputeType<T>>::Of(windows, i % windows.output_pixels,
                                                             x + plane * windows.input_pixels);
    y[i] = static_cast<T>(largest.value);
    if (indices)
      indices[i] = plane * windows.input_pixels + Stored(largest.pixel < 0 ? 0 : largest.pixel);
  }
  // Returns the index in the node's storage order.
  OPKIT_DEVICE int64_t Stored(int64_t pixel) const {
    if (!column_major) return pixel;
    int64_t stored = 0, step = windows.input_pixels;
    for (int axis = windows.axes - 1; axis >= 0; --axis) {
      step /= windows.along[axis].input;
      stored += pixel % windows.along[axis].input * step;
      pixel /= windows.along[axis].input;
    }
    return stored;
  }
};

// The numbers of AveragePool and LpPool.
template <class Real>
struct CUDAPoolAttributes {
  bool with_pads;  // of AveragePool
  Real p;          // of LpPool
};
// AveragePool and LpPool.
template <bool kAverage, class T>
struct CUDASumPoolLoop {
  using Real = CUDASumType<T>;
  const T* x;
  T* y;
  CUDAWindows windows;
  CUDAPoolAttributes<Real> attributes;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t o = i % windows.output_pixels;
    const T* plane = x + i / windows.output_pixels * windows.input_pixels;
    Real sum = 0;
    windows.ForEachTap(o, [&](int64_t pixel) {
      const auto value = static_cast<Real>(plane[pixel]);
      sum += kAverage ? value : std::pow(std::fabs(value), attributes.p);
    });
    if constexpr (kAverage) {
      const int64_t divisor = windows.Divisor(o, attributes.with_pads);
      sum = divisor == 0 ? 0 : sum / static_cast<Real>(divisor);
    } else {
      sum = std::pow(sum, 1 / attributes.p);
    }
    y[i] = ElementOfSum<T>(sum);
  }
};

// Sums, for each element, the gradients of the windows that contain it.
template <PoolFunction kFunction, class T>
struct CUDAPoolGradientLoop {
  using Real = CUDASumType<T>;
  const T *x, *gradient;
  T* y;
  CUDAWindows windows;
  CUDAPoolAttributes<Real> attributes;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t pixel = i % windows.input_pixels, plane = i / windows.input_pixels;
    const T* const in = x + plane * windows.input_pixels;
    const T* const slopes = gradient + plane * windows.output_pixels;
    Real sum = 0;
    windows.ForEachWindowOf(
        pixel, [&](int64_t o) { sum += static_cast<Real>(slopes[o]) * Share(o, pixel, in); });
    y[i] = ElementOfSum<T>(sum);
  }
  // Returns the derivative of window `o` with respect to an element.
  OPKIT_DEVICE Real Share(int64_t o, int64_t pixel, const T* in) const {
    if constexpr (kFunction == PoolFunction::kAveragePool) {
      return 1 / static_cast<Real>(windows.Divisor(o, attributes.with_pads));
    } else if constexpr (kFunction == PoolFunction::kMaxPool) {
      return LargestOfWindow<ComputeType<T>>::Of(windows, o, in).pixel == pixel ? 1 : 0;
    } else {
      const Real p = attributes.p;
      Real norm = 0;  // the p-th power of the norm
      windows.ForEachTap(
          o, [&](int64_t tap) { norm += std::pow(std::fabs(static_cast<Real>(in[tap])), p); });
      if (norm == 0) return 0;
      const auto value = static_cast<Real>(in[pixel]);
      return std::copysign(std::pow(std::fabs(value), p - 1), value) * std::pow(norm, 1 / p - 1);
    }
  }
};

// GlobalAveragePool, GlobalLpPool and GlobalMaxPool.
template <PoolFunction kFunction, class T>
struct CUDAGlobalPoolLoop {
  using Real = CUDASumType<T>;
  const T* x;
  T* y;
  int64_t pixels;
  Real p;  // of GlobalLpPool
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t channel, const Team& team) const {
    const T* const in = x + channel * pixels;
    if constexpr (kFunction == PoolFunction::kMaxPool) {
      using C = ComputeType<T>;
      C largest = LeastValue<C>();
      team.Each(pixels, [&](int64_t i) { largest = LargerOf(static_cast<C>(in[i]), largest); });
      largest = team.Combine(largest, [](C a, C b) { return LargerOf(a, b); });
      if (team.is_first()) y[channel] = static_cast<T>(largest);
    } else {
      constexpr bool kAverage = kFunction == PoolFunction::kAveragePool;
      Real sum = 0;
      team.Each(pixels, [&](int64_t i) {
        const auto value = static_cast<Real>(in[i]);
        sum += kAverage ? value : std::pow(std::fabs(value), p);
      });
      sum = team.Sum(sum);
      if (team.is_first())
        y[channel] =
            ElementOfSum<T>(kAverage ? sum / static_cast<Real>(pixels) : std::pow(sum, 1 / p));
    }
  }
};

// Returns an attribute of a node; `otherwise` if the operator does not have it.
inline int64_t NumberOf(const OpSchema& schema, const OperatorDef& def, const char* name,
                        int64_t otherwise) {
  return schema.FindAttribute(name) ? def.args().Get<int64_t>(name, otherwise) : otherwise;
}
// Returns a configuration for a pool on input 0, of one of Types.
template <class Types>
std::vector<KernelConfig> ProposePool(const KernelQuery& query) {
  RequireTypes<Types>(query);
  const SymbolicShape& x = query.inputs[0].shape;
  if (x.has_rank() && x.rank() - 2 > CUDAWindows::kMaxAxes)
    throw UnsupportedOperatorFeature(StrCat("it has at most ", CUDAWindows::kMaxAxes,
                                            " spatial axes, and the input has ", x.rank() - 2));
  return {KernelConfig()};
}

}  // namespace detail

class CUDAMaxPoolOperator final : public MaxPoolOn<CUDAContext> {
 public:
  using MaxPoolOn<CUDAContext>::MaxPoolOn;
  static constexpr auto& Propose = detail::ProposePool<detail::MaxPoolTypes>;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    Tensor* indices = HasOutput(1) ? InferredOutput(1) : nullptr;
    const Tensor& x = DenseInput(0);
    if (y->numel() == 0) return true;
    const detail::CUDAWindows windows(AxesOf(attributes_, x.shape()));
    return Visit<detail::MaxPoolTypes>([&]<class T>() {
      ParallelFor(context_, y->numel(),
                  detail::CUDAMaxPoolLoop<T>{x.data<T>(), y->mutable_data<T>(),
                                             indices ? indices->mutable_data<int64_t>() : nullptr,
                                             windows, column_major_});
    });
  }
};

// The base of AveragePool, LpPool and the gradient of the pools.
class CUDASumPoolBase : public PoolOperatorOn<CUDAContext> {
 public:
  CUDASumPoolBase(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : PoolOperatorOn<CUDAContext>(def, ws, config) {
    detail::CheckNormExponent(type(), p_);
  }

 protected:
  template <class T>
  auto Attributes() const {
    using Real = detail::CUDASumType<T>;
    return detail::CUDAPoolAttributes<Real>{with_pads_, static_cast<Real>(p_)};
  }

 private:
  const bool with_pads_ = detail::NumberOf(schema(), def(), "count_include_pad", 0) != 0;
  const int64_t p_ = detail::NumberOf(schema(), def(), "p", 2);
};

// AveragePool, or LpPool.
template <bool kAverage>
class CUDASumPoolOperator final : public CUDASumPoolBase {
 public:
  using CUDASumPoolBase::CUDASumPoolBase;
  static constexpr auto& Propose = detail::ProposePool<FloatTypes>;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor& x = DenseInput(0);
    if (y->numel() == 0) return true;
    const detail::CUDAWindows windows(AxesOf(attributes_, x.shape()));
    return Visit<FloatTypes>([&]<class T>() {
      ParallelFor(context_, y->numel(),
                  detail::CUDASumPoolLoop<kAverage, T>{x.data<T>(), y->mutable_data<T>(), windows,
                                                       Attributes<T>()});
    });
  }
};

class CUDAPoolGradientOperator final : public CUDASumPoolBase {
 public:
  using CUDASumPoolBase::CUDASumPoolBase;
  static constexpr auto& Propose = detail::ProposePool<FloatTypes>;

  bool RunOnDevice() override {
    Tensor* dx = InferredOutput(0);
    const Tensor &x = DenseInput(0), &dy = DenseInput(1);
    if (dx->numel() == 0) return true;
    const detail::CUDAWindows windows(AxesOf(attributes_, x.shape()));
    return Visit<FloatTypes>([&]<class T>() {
      using Function = detail::PoolFunction;
      const auto launch = [&]<Function kFunction>() {
        ParallelFor(
            context_, dx->numel(),
            detail::CUDAPoolGradientLoop<kFunction, T>{
                x.data<T>(), dy.data<T>(), dx->mutable_data<T>(), windows, Attributes<T>()});
      };
      if (function_ == Function::kAveragePool)
        launch.template operator()<Function::kAveragePool>();
      else if (function_ == Function::kLpPool)
        launch.template operator()<Function::kLpPool>();
      else
        launch.template operator()<Function::kMaxPool>();
    });
  }

 private:
  const detail::PoolFunction function_ =
      EnumeratorOf<detail::PoolFunction>(type(), def().args(), "function");
};

template <detail::PoolFunction kFunction>
class CUDAGlobalPoolOperator final : public CUDAStandardOperator {
 public:
  CUDAGlobalPoolOperator(const OperatorDef& def, Workspace* ws,
                         const KernelConfig* config = nullptr)
      : CUDAStandardOperator(def, ws, config) {
    detail::CheckNormExponent(type(), p_);
  }
  static constexpr auto& Propose = ProposeTypes<FloatTypes>;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor& x = DenseInput(0);
    if (y->numel() == 0) return true;
    const int64_t pixels = x.numel() / y->numel();
    return Visit<FloatTypes>([&]<class T>() {
      ParallelForTeams(
          context_, y->numel(), pixels,
          detail::CUDAGlobalPoolLoop<kFunction, T>{x.data<T>(), y->mutable_data<T>(), pixels,
                                                   static_cast<detail::CUDASumType<T>>(p_)});
    });
  }

 private:
  const int64_t p_ = detail::NumberOf(schema(), def(), "p", 2);
};

OPKIT_CUDA_OPERATOR(MaxPool, CUDAMaxPoolOperator);
OPKIT_CUDA_OPERATOR(AveragePool, CUDASumPoolOperator<true>);
OPKIT_CUDA_OPERATOR(LpPool, CUDASumPoolOperator<false>);
OPKIT_CUDA_OPERATOR(PoolGradient, CUDAPoolGradientOperator);
OPKIT_CUDA_OPERATOR(GlobalAveragePool, CUDAGlobalPoolOperator<detail::PoolFunction::kAveragePool>);
OPKIT_CUDA_OPERATOR(GlobalLpPool, CUDAGlobalPoolOperator<detail::PoolFunction::kLpPool>);
OPKIT_CUDA_OPERATOR(GlobalMaxPool, CUDAGlobalPoolOperator<detail::PoolFunction::kMaxPool>);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ROWS_POOL_HPP_

// LSTM, GRU and RNN of the backend "cublas". One product has W x for all steps. Then each step has
// a product with R and a loop over the elements of the state.
#ifndef OPKIT_BACKENDS_CUDA_LIBRARIES_CUBLAS_RECURRENT_HPP_
#define OPKIT_BACKENDS_CUDA_LIBRARIES_CUBLAS_RECURRENT_HPP_

#include "opkit/backends/cuda/libraries/cublas.hpp"
#include "opkit/backends/cuda/ops/moving/index_fault.hpp"
#include "opkit/backends/cuda/ops/sum_type.hpp"
#include "opkit/ops/nn/recurrent.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Elements of the state, as the loops visit them: [directions, batch, hidden].
struct RecurrentElement {
  int64_t direction, sequence, unit;

  OPKIT_DEVICE RecurrentElement(const RecurrentSizes& sizes, int64_t i)
      : direction(i / sizes.hidden / sizes.batch),
        sequence(i / sizes.hidden % sizes.batch),
        unit(i % sizes.hidden) {}
};

// The data that all steps of a layer read and write on the device.
template <class T>
struct RecurrentData {
  using C = CUDASumType<T>;
  RecurrentSizes sizes;
  CUDAIndices lengths;
  RecurrentFunction functions[2][3];  // of each direction
  bool is_reverse[2];
  C clip;
  bool variant;
  const C* of_x;      // W x, [directions, rows of X, gates * hidden]; null: 0
  const C* of_h;      // R h, [directions, batch, gates * hidden]
  const C* of_reset;  // GRU: R (r * h) of the hidden gate, as the state; null: a part of of_h
  const T *bias, *peephole;  // null: 0
  T *h, *reset;              // [directions, batch, hidden]
  C* c;
  T* y;  // null: the node leaves it out

  OPKIT_DEVICE RecurrentUnit<C> Unit(int64_t direction) const {
    return {functions[direction], clip, variant};
  }
  // Returns true if a sequence has the step, and sets `at` to the step of X that it reads.
  OPKIT_DEVICE bool FindStep(const RecurrentElement& e, int64_t step, int64_t* at) const {
    const int64_t length = lengths.Length(e.sequence, sizes.steps);
    *at = is_reverse[e.direction] ? length - 1 - step : step;
    return step < length;
  }
  // Returns the part of W x + b of a gate, b of W.
  template <int kGates>
  OPKIT_DEVICE C OfX(const RecurrentElement& e, int64_t at, int gate) const {
    const int64_t width = kGates * sizes.hidden, row = gate * sizes.hidden + e.unit;
    const C b = bias ? static_cast<C>(bias[e.direction * 2 * width + row]) : C{0};
    if (!of_x) return b;
    const int64_t rows = sizes.steps * sizes.batch;
    return b + of_x[(e.direction * rows + sizes.XRow(at, e.sequence)) * width + row];
  }
  // The same of R h + b, b of R. The products have `products` gates.
  template <int kGates>
  OPKIT_DEVICE C OfH(const RecurrentElement& e, int gate, int products = kGates) const {
    const int64_t row = gate * sizes.hidden + e.unit;
    return BiasOfH<kGates>(e, gate) +
           of_h[(e.direction * sizes.batch + e.sequence) * products * sizes.hidden + row];
  }
  template <int kGates>
  OPKIT_DEVICE C BiasOfH(const RecurrentElement& e, int gate) const {
    const int64_t width = kGates * sizes.hidden;
    return bias ? static_cast<C>(bias[(e.direction * 2 + 1) * width + gate * sizes.hidden + e.unit])
                : C{0};
  }
};

// Sets the state before the first step. Sequences without steps have the state 0.
template <class T>
struct RecurrentStart {
  RecurrentData<T> data;
  const T *initial_h, *initial_c;  // null: 0
  OPKIT_DEVICE void operator()(int64_t i) const {
    const RecurrentElement e(data.sizes, i);
    const int64_t from = data.sizes.State(e.direction, e.sequence) + e.unit;
    const bool has_steps = data.lengths.Length(e.sequence, data.sizes.steps) > 0;
    data.h[i] = has_steps && initial_h ? initial_h[from] : T{};
    if (data.c)
      data.c[i] = static_cast<CUDASumType<T>>(has_steps && initial_c ? initial_c[from] : T{});
  }
};

// The element r * h of the state, for the product of the hidden gate of GRU.
template <class T>
struct GruReset {
  RecurrentData<T> data;
  int64_t step;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const RecurrentElement e(data.sizes, i);
    int64_t at = 0;
    if (!data.FindStep(e, step, &at)) return;
    const auto sum = data.template OfX<3>(e, at, 1) + data.template OfH<3>(e, 1, 2);
    data.reset[i] = ElementOfSum<T>(data.Unit(e.direction).Apply(0, sum) *
                                    static_cast<CUDASumType<T>>(data.h[i]));
  }
};

// An element of the next state.
template <class Layer, class T>
struct RecurrentNext {
  using C = CUDASumType<T>;
  static constexpr int kGates = Layer::kGates;
  RecurrentData<T> data;
  int64_t step;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const RecurrentElement e(data.sizes, i);
    int64_t at = 0;
    if (!data.FindStep(e, step, &at)) {
      if (data.y) data.y[data.sizes.Y(step, e.direction, e.sequence) + e.unit] = T{};
      return;
    }
    const T next = ElementOfSum<T>(State(e, at, i));
    data.h[i] = next;
    if (data.y) data.y[data.sizes.Y(at, e.direction, e.sequence) + e.unit] = next;
  }

 private:
  OPKIT_DEVICE C Sum(const RecurrentElement& e, int64_t at, int gate) const {
    return data.template OfX<kGates>(e, at, gate) + data.template OfH<kGates>(e, gate);
  }
  OPKIT_DEVICE C State(const RecurrentElement& e, int64_t at, int64_t i) const {
    const RecurrentUnit<C> unit = data.Unit(e.direction);
    if constexpr (std::is_same_v<Layer, LstmLayer>) {
      C gates[4], peephole[3] = {};
      for (int gate = 0; gate < 4; ++gate) gates[gate] = Sum(e, at, gate);
      for (int gate = 0; gate < 3 && data.peephole; ++gate)
        peephole[gate] =
            static_cast<C>(data.peephole[(e.direction * 3 + gate) * data.sizes.hidden + e.unit]);
      return unit.Lstm(gates, peephole, data.c[i]);
    } else if constexpr (std::is_same_v<Layer, GruLayer>) {
      const int products = data.of_reset ? 2 : 3;
      const auto sum = [&](int gate) {
        return data.template OfX<3>(e, at, gate) + data.template OfH<3>(e, gate, products);
      };
      C candidate = data.template OfX<3>(e, at, 2);
      if (data.of_reset)
        candidate += data.of_reset[i] + data.template BiasOfH<3>(e, 2);
      else
        candidate += unit.Apply(0, sum(1)) * data.template OfH<3>(e, 2);
      return unit.Gru(unit.Apply(0, sum(0)), candidate, static_cast<C>(data.h[i]));
    } else {
      return unit.Apply(0, Sum(e, at, 0));
    }
  }
};

// Writes the state after the last step to Y_h and Y_c.
template <class T>
struct RecurrentEnd {
  RecurrentData<T> data;
  T *y_h, *y_c;  // null: left out
  OPKIT_DEVICE void operator()(int64_t i) const {
    const RecurrentElement e(data.sizes, i);
    const int64_t to = data.sizes.State(e.direction, e.sequence) + e.unit;
    if (y_h) y_h[to] = data.h[i];
    if (y_c) y_c[to] = ElementOfSum<T>(data.c[i]);
  }
};

// Where the parts of the scratch memory begin, in bytes.
struct RecurrentParts {
  CublasParts all;
  int64_t of_x, of_h, of_reset, h, reset, c;

  RecurrentParts(const RecurrentSizes& sizes, int gates, DType dtype) {
    const int64_t element = ItemSize(dtype), sum = element < 4 ? 4 : element;
    const int64_t state = sizes.directions * sizes.batch * sizes.hidden;
    of_x = all.Add(sizes.steps * state * gates * sum);
    of_h = all.Add(state * gates * sum);
    of_reset = all.Add(state * sum);
    h = all.Add(state * element);
    reset = all.Add(state * element);
    c = all.Add(state * sum);
  }
};

}  // namespace detail

template <class Layer>
class CublasRecurrentOp final : public RecurrentOpBase<Layer, CUDAIndexedOperator> {
  using Base = RecurrentOpBase<Layer, CUDAIndexedOperator>;

 public:
  using Base::Base;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<FloatTypes>(query);
    KernelConfig config;
    config.scratch_bytes = detail::kCublasScratch;
    const SymbolicShape &x = query.inputs[Base::kX].shape, &r = query.inputs[Base::kR].shape;
    if (x.is_known() && r.is_known()) {
      const bool batch_first = query.def.args().Get<int64_t>("layout", 0) != 0;
      const RecurrentSizes sizes(x.ToShape(), r.ToShape(), batch_first);
      config.scratch_bytes =
          detail::RecurrentParts(sizes, Layer::kGates, query.inputs[Base::kX].dtype).all.size();
    }
    return {std::move(config)};
  }

 private:
  bool RunIndexed() override {
    const RecurrentSizes sizes = this->SizesNow();
    return this->template Visit<FloatTypes>([&]<class T>() { Run<T>(sizes); });
  }

  template <class T>
  void Run(const RecurrentSizes& sizes) {
    using C = detail::CUDASumType<T>;
    using In = RecurrentInputs;
    constexpr int kGates = Layer::kGates;
    const int64_t state = sizes.directions * sizes.batch * sizes.hidden, hidden = sizes.hidden;
    detail::RecurrentData<T> data = {};
    data.y = Output<T>(0);
    T *const y_h = Output<T>(1), *const y_c = Output<T>(2);
    if (state == 0) return;
    const detail::RecurrentParts parts(sizes, kGates, kDTypeOf<T>);
    char* const scratch = detail::CublasParts::Begin(this->Scratch(parts.all.size()));
    const auto workspace = [scratch] { return scratch; };
    const auto part = [scratch]<class E>(E*, int64_t at) {
      return reinterpret_cast<E*>(scratch + at);
    };
    C *of_x = nullptr, *of_h = part(of_x, parts.of_h), *of_reset = nullptr;
    if (sizes.input > 0) of_x = part(of_x, parts.of_x);
    const bool resets_first = std::is_same_v<Layer, GruLayer> && !this->variant_;
    if (resets_first) of_reset = part(of_reset, parts.of_reset);

    data.sizes = sizes;
    data.lengths = this->Lengths(In::kLengths);
    for (int64_t d = 0; d < sizes.directions; ++d) {
      const size_t count = Layer::Functions().size();
      std::copy(this->Functions(d), this->Functions(d) + count, data.functions[d]);
      data.is_reverse[d] = this->IsReverse(d);
    }
    data.clip = static_cast<C>(this->clip_);
    data.variant = this->variant_;
    data.of_x = of_x, data.of_h = of_h, data.of_reset = of_reset;
    data.bias = Given<T>(In::kB);
    data.h = part(data.h, parts.h), data.reset = part(data.reset, parts.reset);
    if (Layer::kHasCell) data.c = part(data.c, parts.c), data.peephole = Given<T>(In::kP);

    CUDAContext& context = this->context_;
    ParallelFor(context, state,
                detail::RecurrentStart<T>{data, Given<T>(In::kInitialH),
                                          Layer::kHasCell ? Given<T>(In::kInitialC) : nullptr});
    const T *w = Given<T>(In::kW), *r = Given<T>(In::kR);
    const int64_t rows = sizes.steps * sizes.batch, width = kGates * hidden;
    const auto multiply = [&](detail::CublasProduct& product, const T* a, const T* b, C* to,
                              int64_t m, int64_t n, int64_t k, int64_t step_a, int64_t step_b) {
      detail::CublasExtents extents{kDTypeOf<T>, m, n, k, false, true};
      extents.batch = sizes.directions;
      extents.stride_a = step_a, extents.stride_b = step_b;
      extents.is_wide = true;
      product.Run(context, extents, {a, b, nullptr, to}, workspace);
    };
    if (of_x && rows > 0)
      multiply(for_x_, Given<T>(In::kX), w, of_x, rows, width, sizes.input, 0, width * sizes.input);
    const int64_t step_h = sizes.batch * hidden, step_r = width * hidden;
    for (int64_t step = 0; step < sizes.steps; ++step) {
      multiply(for_h_, data.h, r, of_h, sizes.batch, resets_first ? 2 * hidden : width, hidden,
               step_h, step_r);
      if (resets_first) {
        ParallelFor(context, state, detail::GruReset<T>{data, step});
        multiply(for_reset_, data.reset, r + 2 * hidden * hidden, of_reset, sizes.batch, hidden,
                 hidden, step_h, step_r);
      }
      ParallelFor(context, state, detail::RecurrentNext<Layer, T>{data, step});
    }
    if (y_h || y_c) ParallelFor(context, state, detail::RecurrentEnd<T>{data, y_h, y_c});
  }
  template <class T>
  const T* Given(int i) {
    return this->HasInput(i) ? this->DenseInput(i).template data<T>() : nullptr;
  }
  template <class T>
  T* Output(int o) {
    return o < this->OutputSize() && this->HasOutput(o)
               ? this->InferredOutput(o)->template mutable_data<T>()
               : nullptr;
  }

  detail::CublasProduct for_x_, for_h_, for_reset_;
};

OPKIT_CUDA_OPERATOR_OF(kCublasBackend, LSTM, CublasRecurrentOp<LstmLayer>);
OPKIT_CUDA_OPERATOR_OF(kCublasBackend, GRU, CublasRecurrentOp<GruLayer>);
OPKIT_CUDA_OPERATOR_OF(kCublasBackend, RNN, CublasRecurrentOp<RnnLayer>);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_LIBRARIES_CUBLAS_RECURRENT_HPP_

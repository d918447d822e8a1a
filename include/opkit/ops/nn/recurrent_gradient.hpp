// LSTMGradient, GRUGradient and RNNGradient: backpropagation through time. Each sequence runs
// again, keeps the state before each step, and goes back from its last step.
#ifndef OPKIT_OPS_NN_RECURRENT_GRADIENT_HPP_
#define OPKIT_OPS_NN_RECURRENT_GRADIENT_HPP_

#include "opkit/ops/nn/recurrent.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The gradients of one step. `h` and `c` are those of the state and of the cell: after the step
// before RecurrentStepBack, and before the step after it.
struct RecurrentSlopes {
  std::vector<double> h, c;
  std::vector<double> gates;      // of W x + Wb
  std::vector<double> recurrent;  // of R h + Rb
  // The vector that the last third of the rows of R multiplies, if it is not the state; else empty.
  std::vector<double> kept;
  double* peephole;
};
// Returns the derivative of RecurrentUnit::Apply.
inline double RecurrentSlope(const RecurrentState& s, int function, double x) {
  if (s.unit.clip > 0 && std::fabs(x) > s.unit.clip) return 0;
  return s.unit.f[function].Derivative(x);
}
// Adds R' times the gradients of rows [begin, end) to `to`.
inline void AddThroughR(const RecurrentState& s, const std::vector<double>& slopes, int64_t begin,
                        int64_t end, std::vector<double>& to) {
  for (int64_t row = begin; row < end; ++row)
    for (int64_t i = 0; i < s.hidden; ++i)
      to[Index(i)] += s.r[row * s.hidden + i] * slopes[Index(row)];
}

inline void RecurrentStepBack(LstmLayer, const RecurrentState& s, RecurrentSlopes& d) {
  const int64_t n = s.hidden;
  for (int64_t j = 0; j < n; ++j) {
    const auto sum = [&](int64_t row) { return s.Gate(row) + s.Recur(row, s.h); };
    const double before = s.c[Index(j)], *p = s.peephole;
    const double in_sum = sum(j) + p[j] * before, in = s.unit.Apply(0, in_sum);
    const double forget_sum = s.unit.variant ? 0 : sum(2 * n + j) + p[2 * n + j] * before;
    const double forget = s.unit.variant ? 1 - in : s.unit.Apply(0, forget_sum);
    const double cell_sum = sum(3 * n + j), made = s.unit.Apply(1, cell_sum);
    const double cell = forget * before + in * made;
    const double out_sum = sum(n + j) + p[n + j] * cell, out = s.unit.Apply(0, out_sum);
    const double slope = d.h[Index(j)];
    const double to_out = slope * s.unit.f[2](cell) * RecurrentSlope(s, 0, out_sum);
    const double to_cell =
        d.c[Index(j)] + slope * out * s.unit.f[2].Derivative(cell) + to_out * p[n + j];
    const double to_in =
        to_cell * (s.unit.variant ? made - before : made) * RecurrentSlope(s, 0, in_sum);
    const double to_forget =
        s.unit.variant ? 0 : to_cell * before * RecurrentSlope(s, 0, forget_sum);
    d.c[Index(j)] = to_cell * forget + to_in * p[j] + to_forget * p[2 * n + j];
    d.peephole[j] += to_in * before;
    d.peephole[n + j] += to_out * cell;
    d.peephole[2 * n + j] += to_forget * before;
    d.gates[Index(j)] = to_in;
    d.gates[Index(n + j)] = to_out;
    d.gates[Index(2 * n + j)] = to_forget;
    d.gates[Index(3 * n + j)] = to_cell * in * RecurrentSlope(s, 1, cell_sum);
  }
  d.recurrent = d.gates;
  d.h.assign(d.h.size(), 0);
  AddThroughR(s, d.recurrent, 0, 4 * n, d.h);
}
inline void RecurrentStepBack(GruLayer, const RecurrentState& s, RecurrentSlopes& d) {
  const int64_t n = s.hidden;
  const auto sum = [&](int64_t row) { return s.Gate(row) + s.Recur(row, s.h); };
  std::vector<double> reset(static_cast<size_t>(n)), to_reset = reset, before = reset;
  d.kept = reset;
  for (int64_t j = 0; j < n; ++j) {
    reset[Index(j)] = s.unit.Apply(0, sum(n + j));
    d.kept[Index(j)] = reset[Index(j)] * s.h[Index(j)];
  }
  for (int64_t j = 0; j < n; ++j) {
    const double update = s.unit.Apply(0, sum(j)), slope = d.h[Index(j)];
    const double linear = s.Recur(2 * n + j, s.unit.variant ? s.h : d.kept);
    const double candidate_sum =
        s.Gate(2 * n + j) + (s.unit.variant ? reset[Index(j)] * linear : linear);
    const double candidate = s.unit.Apply(1, candidate_sum);
    const double to_candidate = slope * (1 - update) * RecurrentSlope(s, 1, candidate_sum);
    before[Index(j)] = slope * update;
    d.gates[Index(j)] = slope * (s.h[Index(j)] - candidate) * RecurrentSlope(s, 0, sum(j));
    d.gates[Index(2 * n + j)] = to_candidate;
    if (s.unit.variant) to_reset[Index(j)] = to_candidate * linear;
  }
  d.recurrent = d.gates;
  if (s.unit.variant) {
    for (int64_t j = 0; j < n; ++j) d.recurrent[Index(2 * n + j)] *= reset[Index(j)];
    AddThroughR(s, d.recurrent, 2 * n, 3 * n, before);
    d.kept.clear();
  } else {
    std::vector<double> to_kept(static_cast<size_t>(n));
    AddThroughR(s, d.recurrent, 2 * n, 3 * n, to_kept);
    for (int64_t j = 0; j < n; ++j) {
      to_reset[Index(j)] = to_kept[Index(j)] * s.h[Index(j)];
      before[Index(j)] += to_kept[Index(j)] * reset[Index(j)];
    }
  }
  for (int64_t j = 0; j < n; ++j)
    d.recurrent[Index(n + j)] = d.gates[Index(n + j)] =
        to_reset[Index(j)] * RecurrentSlope(s, 0, sum(n + j));
  AddThroughR(s, d.recurrent, 0, 2 * n, before);
  d.h = std::move(before);
}
inline void RecurrentStepBack(RnnLayer, const RecurrentState& s, RecurrentSlopes& d) {
  for (int64_t j = 0; j < s.hidden; ++j)
    d.gates[Index(j)] = d.h[Index(j)] * RecurrentSlope(s, 0, s.Gate(j) + s.Recur(j, s.h));
  d.recurrent = d.gates;
  d.h.assign(d.h.size(), 0);
  AddThroughR(s, d.recurrent, 0, s.hidden, d.h);
}

// Each gradient has the type and shape of its input.
inline void InferRecurrentGradient(InferenceContext& c) {
  for (int o = 0; o < c.num_outputs(); ++o)
    c.SetOutput(o, c.input_dtype(0), c.input_shape(kRecurrentSlopes[o]));
}

template <class Layer>
void FillRecurrentGradientSchema(OpSchema& schema) {
  FillRecurrentSchema<Layer>(schema,
                             "The gradients of a recurrent layer, from those of its outputs.");
  const std::vector<DType> types = FloatTypes::DTypes();
  schema.Private()
      .NumInputs(kRecurrentInputs + 1, kRecurrentInputs + 3)
      .NumOutputs(3, 7)
      .Input(6, "initial_c", "of an LSTM", types)
      .Input(7, "P", "of an LSTM", types)
      .Input(8, "dY", "of output Y; optional: 0", types)
      .Input(9, "dY_h", "of output Y_h; optional: 0", types)
      .Input(10, "dY_c", "of output Y_c; optional: 0", types)
      .Output(0, "dX", "as X")
      .Output(1, "dW", "as W")
      .Output(2, "dR", "as R")
      .Output(3, "dB", "as B, optional")
      .Output(4, "dinitial_h", "as initial_h, optional")
      .Output(5, "dinitial_c", "as initial_c, optional")
      .Output(6, "dP", "as P, optional")
      .Infer(&InferRecurrentGradient);
}

}  // namespace detail

// Computes in double. The directions run side by side, the sequences of one after another, because
// they add to the same gradients of weights.
template <class Layer>
class RecurrentGradientOp final : public RecurrentOpBase<Layer> {
  using Base = RecurrentOpBase<Layer>;

 public:
  using Base::Base;

  bool RunOnDevice() override {
    const RecurrentSizes sizes = this->SizesNow();
    this->ReadLengths(sizes, lengths_);
    const int64_t d = sizes.directions, rows = Base::kGates * sizes.hidden;
    const int64_t states = d * sizes.batch * sizes.hidden;
    const int64_t counts[] = {sizes.steps * sizes.batch * sizes.input,
                              d * rows * sizes.input,
                              d * rows * sizes.hidden,
                              d * 2 * rows,
                              0,
                              states,
                              states,
                              d * 3 * sizes.hidden,
                              sizes.steps * states,
                              states,
                              states};
    for (int i = 0; i < kValues; ++i) {
      const auto at = static_cast<size_t>(i);
      const bool given = i < this->InputSize() && this->HasInput(i) && i != Base::kLengths;
      values_[at] = given ? detail::NumbersOf<double>(this->Input(i))
                          : std::vector<double>(static_cast<size_t>(counts[i]));
      if (i < detail::kRecurrentInputs) slopes_[at].assign(static_cast<size_t>(counts[i]), 0);
    }
    // Both directions add to the gradient of X.
    std::vector<std::vector<double>> to_x(static_cast<size_t>(d), slopes_[Base::kX]);
    ParallelFor(d, [&](int64_t direction) {
      for (int64_t sequence = 0; sequence < sizes.batch; ++sequence)
        RunSequence(sizes, direction, sequence, to_x[detail::Index(direction)]);
    });
    for (const std::vector<double>& one : to_x)
      for (size_t i = 0; i < one.size(); ++i) slopes_[Base::kX][i] += one[i];
    for (int o = 0; o < this->OutputSize(); ++o) {
      if (!this->HasOutput(o)) continue;
      const std::vector<double>& from = slopes_[detail::Index(detail::kRecurrentSlopes[o])];
      Tensor* to = this->InferredOutput(o);
      FloatTypes::Visit(to->dtype(), [&]<class T>() {
        T* out = to->mutable_data<T>();
        for (size_t i = 0; i < from.size(); ++i) out[i] = detail::ElementOfSum<T>(from[i]);
      });
    }
    return true;
  }

 private:
  static constexpr int kValues = 11;
  enum { kSlopeY = 8, kSlopeH, kSlopeC };

  // Runs one sequence in one direction forward, then back.
  void RunSequence(const RecurrentSizes& sizes, int64_t direction, int64_t sequence,
                   std::vector<double>& to_x) {
    const int64_t n = sizes.hidden, rows = Base::kGates * n;
    const int64_t length = lengths_[detail::Index(sequence)];
    if (length == 0) return;
    const int64_t state = sizes.State(direction, sequence);
    const double* w = values_[Base::kW].data() + direction * rows * sizes.input;
    const double* b = values_[Base::kB].data() + direction * 2 * rows;
    detail::RecurrentState s;
    s.unit.f = this->Functions(direction);
    s.unit.clip = static_cast<double>(this->clip_);
    s.unit.variant = this->variant_;
    s.hidden = n;
    s.r = values_[Base::kR].data() + direction * rows * n;
    s.bias_r = b + rows;
    s.peephole = values_[Base::kP].data() + direction * 3 * n;
    const auto part = [&](int i, int64_t at) {
      const double* from = values_[detail::Index(i)].data() + at;
      return std::vector<double>(from, from + n);
    };
    s.h = part(Base::kInitialH, state);
    s.c = part(Base::kInitialC, state);
    const auto step_of = [&](int64_t i) { return this->IsReverse(direction) ? length - 1 - i : i; };
    std::vector<detail::RecurrentState> before;
    for (int64_t i = 0; i < length; ++i) {
      const double* x = values_[Base::kX].data() + sizes.XRow(step_of(i), sequence) * sizes.input;
      s.gates.assign(b, b + rows);
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t k = 0; k < sizes.input; ++k)
          s.gates[detail::Index(row)] += w[row * sizes.input + k] * x[k];
      before.push_back(s);
      detail::RecurrentStep(Layer(), s);
    }
    detail::RecurrentSlopes slopes;
    slopes.h = part(kSlopeH, state);
    slopes.c = part(kSlopeC, state);
    slopes.gates.resize(static_cast<size_t>(rows));
    slopes.peephole = slopes_[Base::kP].data() + direction * 3 * n;
    for (int64_t i = length; i-- > 0;) {
      const double* y = values_[kSlopeY].data() + sizes.Y(step_of(i), direction, sequence);
      for (int64_t j = 0; j < n; ++j) slopes.h[detail::Index(j)] += y[j];
      const detail::RecurrentState& at = before[detail::Index(i)];
      detail::RecurrentStepBack(Layer(), at, slopes);
      const int64_t x = sizes.XRow(step_of(i), sequence) * sizes.input;
      AddStep(sizes, direction, at, slopes, w, values_[Base::kX].data() + x, to_x.data() + x);
    }
    std::copy(slopes.h.begin(), slopes.h.end(), slopes_[Base::kInitialH].begin() + state);
    std::copy(slopes.c.begin(), slopes.c.end(), slopes_[Base::kInitialC].begin() + state);
  }
  // Adds the gradients of X and of the weights of one step.
  void AddStep(const RecurrentSizes& sizes, int64_t direction, const detail::RecurrentState& s,
               const detail::RecurrentSlopes& slopes, const double* w, const double* x,
               double* to_x) {
    const int64_t n = sizes.hidden, rows = Base::kGates * n;
    double* to_w = slopes_[Base::kW].data() + direction * rows * sizes.input;
    double* to_r = slopes_[Base::kR].data() + direction * rows * n;
    double* to_b = slopes_[Base::kB].data() + direction * 2 * rows;
    for (int64_t row = 0; row < rows; ++row) {
      const double gate = slopes.gates[detail::Index(row)];
      const double recurrent = slopes.recurrent[detail::Index(row)];
      to_b[row] += gate;
      to_b[rows + row] += recurrent;
      for (int64_t k = 0; k < sizes.input; ++k) {
        to_w[row * sizes.input + k] += gate * x[k];
        to_x[k] += gate * w[row * sizes.input + k];
      }
      const bool is_kept = !slopes.kept.empty() && row >= 2 * n;
      const std::vector<double>& state = is_kept ? slopes.kept : s.h;
      for (int64_t i = 0; i < n; ++i) to_r[row * n + i] += recurrent * state[detail::Index(i)];
    }
  }

  std::vector<int64_t> lengths_;
  std::vector<double> values_[kValues];                   // of the inputs
  std::vector<double> slopes_[detail::kRecurrentInputs];  // gradients, by input of the layer
};

OPKIT_STANDARD_OPERATOR(LSTMGradient, kNotImplemented, RecurrentGradientOp<LstmLayer>)
    .FillUsing([](OpSchema& schema) {
      detail::FillRecurrentGradientSchema<LstmLayer>(schema);
      schema.Arg<int64_t>("input_forget", "of the LSTM", 0);
    });
OPKIT_STANDARD_OPERATOR(GRUGradient, kNotImplemented, RecurrentGradientOp<GruLayer>)
    .FillUsing([](OpSchema& schema) {
      detail::FillRecurrentGradientSchema<GruLayer>(schema);
      schema.Arg<int64_t>("linear_before_reset", "of the GRU", 0);
    });
OPKIT_STANDARD_OPERATOR(RNNGradient, kNotImplemented, RecurrentGradientOp<RnnLayer>)
    .FillUsing([](OpSchema& schema) { detail::FillRecurrentGradientSchema<RnnLayer>(schema); });

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_RECURRENT_GRADIENT_HPP_

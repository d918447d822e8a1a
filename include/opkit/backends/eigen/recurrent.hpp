// LSTM, GRU and RNN of float32 for the "eigen" backend: one matrix product for the inputs of all
// steps, then for each step a small product and vector arithmetic on the gates.
#ifndef OPKIT_BACKENDS_EIGEN_RECURRENT_HPP_
#define OPKIT_BACKENDS_EIGEN_RECURRENT_HPP_

#include "opkit/backends/eigen/support/elementwise_kernel.hpp"
#include "opkit/backends/eigen/support/gemm.hpp"
#include "opkit/backends/eigen/support/half_operator.hpp"
#include "opkit/ops/nn/recurrent.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Weights, states and buffers of one direction of a layer during a run.
struct RecurrentPass {
  const RecurrentFunction* f;  // the activation functions f, g and h of ONNX
  float clip;                  // bound of the activations' inputs; 0: no bound
  bool variant;
  int64_t hidden, width;     // `width` is gates * hidden
  const float* r;            // [width, hidden]
  const float* packed;       // the transpose of r, or null
  const float* bias_r;       // [width], or null
  const float* peephole;     // [3 * hidden], or null
  float *h, *c;              // states of the sequences, [batch, hidden]
  float *recurrent, *reset;  // buffers of GRU: [batch, width], [batch, hidden]

  // Computes out[rows, gates * hidden] = beta * out + state R^T for gates [first, first + gates).
  void Recur(int64_t rows, const float* state, int64_t first, int64_t gates,
             const GemmResult<float>& out) const {
    const GemmMatrix<float> weights =
        packed ? GemmMatrix<float>{packed + first * hidden, width}
               : GemmMatrix<float>{r + first * hidden * hidden, hidden, true};
    Gemm<float>({rows, gates * hidden, hidden}, 1, {state, hidden}, weights, out);
  }
  // Clips the values if `clips`, and applies activation number `function`, in place.
  void Activate(int function, float* values, int64_t count, bool clips = true) const {
    FloatArray x(values, count);
    if (clips && clip > 0) x = x.min(clip).max(-clip);
    switch (f[function].kind) {
      case RecurrentFunction::Kind::kSigmoid:
        x = (1 + (-x).exp()).inverse();  // Eigen's logistic() is inexact near 1
        break;
      case RecurrentFunction::Kind::kTanh:
        RunPackets(TanhPacket(nullptr), values, count, PacketOperand<false>(values));
        break;
      case RecurrentFunction::Kind::kRelu:
        x = x.max(0.f);
        break;
      default:
        for (int64_t i = 0; i < count; ++i) values[i] = f[function](values[i]);
    }
  }
};

// A step of sequences [first, first + count). `gates` point to W x + b of the first sequence; the
// next sequence follows after `stride` floats.
struct GateStep {
  int64_t first, count;
  float* gates;
  int64_t stride;
};

// Runs a step: adds the recurrent part to the gates, and computes the next state of each sequence s
// for which active(s) is true: s has not ended.
template <class Active>
void RecurrentGates(LstmLayer, const RecurrentPass& pass, const GateStep& step, Active active) {
  const auto [first, count, gates, stride] = step;
  const int64_t n = pass.hidden;
  pass.Recur(count, pass.h + first * n, 0, 4, {gates, stride, 1});
  for (int64_t s = 0; s < count; ++s) {
    if (!active(first + s)) continue;
    float* row = gates + s * stride;
    FloatArray in(row, n), out(row + n, n), forget(row + 2 * n, n), next(row + 3 * n, n),
        cell(pass.c + (first + s) * n, n), h(pass.h + (first + s) * n, n);
    auto peephole = [&](int64_t gate) {
      return ConstFloatArray(pass.peephole + gate * n, n) * cell;
    };
    if (pass.peephole) {
      in += peephole(0);
      forget += peephole(2);
    }
    pass.Activate(0, in.data(), n);
    if (pass.variant)
      forget = 1 - in;
    else
      pass.Activate(0, forget.data(), n);
    pass.Activate(1, next.data(), n);
    cell = forget * cell + in * next;
    if (pass.peephole) out += peephole(1);
    pass.Activate(0, out.data(), n);
    h = cell;
    pass.Activate(2, h.data(), n, false);
    h *= out;
  }
}
template <class Active>
void RecurrentGates(GruLayer, const RecurrentPass& pass, const GateStep& step, Active active) {
  const auto [first, count, gates, stride] = step;
  const int64_t n = pass.hidden;
  if (pass.variant)
    pass.Recur(count, pass.h + first * n, 0, 3, {pass.recurrent, 3 * n});
  else
    pass.Recur(count, pass.h + first * n, 0, 2, {gates, stride, 1});
  for (int64_t s = 0; s < count; ++s) {
    float *row = gates + s * stride, *recurrent = pass.recurrent + s * 3 * n;
    FloatArray both(row, 2 * n), reset(row + n, n), next(row + 2 * n, n);
    const ConstFloatArray h(pass.h + (first + s) * n, n);
    if (pass.variant) both += ConstFloatArray(recurrent, 2 * n);
    pass.Activate(0, row, 2 * n);
    if (!pass.variant) {
      FloatArray(pass.reset + s * n, n) = reset * h;
    } else if (pass.bias_r) {
      next +=
          reset * (ConstFloatArray(recurrent + 2 * n, n) + ConstFloatArray(pass.bias_r + 2 * n, n));
    } else {
      next += reset * ConstFloatArray(recurrent + 2 * n, n);
    }
  }
  if (!pass.variant) pass.Recur(count, pass.reset, 2, 1, {gates + 2 * n, stride, 1});
  for (int64_t s = 0; s < count; ++s) {
    if (!active(first + s)) continue;
    float* row = gates + s * stride;
    pass.Activate(1, row + 2 * n, n);
    const ConstFloatArray update(row, n), next(row + 2 * n, n);
    FloatArray h(pass.h + (first + s) * n, n);
    h = next + update * (h - next);
  }
}
template <class Active>
void RecurrentGates(RnnLayer, const RecurrentPass& pass, const GateStep& step, Active active) {
  const auto [first, count, gates, stride] = step;
  const int64_t n = pass.hidden;
  pass.Recur(count, pass.h + first * n, 0, 1, {gates, stride, 1});
  for (int64_t s = 0; s < count; ++s) {
    if (!active(first + s)) continue;
    float* row = gates + s * stride;
    pass.Activate(0, row, n);
    FloatArray(pass.h + (first + s) * n, n) = FloatArray(row, n);
  }
}

}  // namespace detail

template <class Layer>
class RecurrentEigenOp final : public RecurrentOpBase<Layer> {
  using Base = RecurrentOpBase<Layer>;

 public:
  using Base::Base;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireFloat32(query);
    const SymbolicShape &x = query.inputs[Base::kX].shape, &r = query.inputs[Base::kR].shape;
    KernelConfig config;
    if (x.is_known() && r.is_known()) {
      RecurrentSizes sizes;
      const Shape extents = x.ToShape(), weights = r.ToShape();
      const bool batch_first = query.def.args().template Get<int64_t>("layout", 0) != 0;
      sizes.steps = extents[batch_first ? 1 : 0];
      sizes.batch = extents[batch_first ? 0 : 1];
      sizes.hidden = weights[2];
      sizes.directions = weights[0];
      config.scratch_bytes = ScratchFloats(sizes) * sizes.directions * 4;
    }
    return {config};
  }

  bool RunOnDevice() override {
    RequireFloat32(*this);
    const RecurrentSizes sizes = this->SizesNow();
    this->ReadLengths(sizes, lengths_);
    float* y = nullptr;
    if (this->HasOutput(0)) {
      Tensor* output = this->InferredOutput(0);
      y = output->mutable_data<float>();
      // Y is 0 behind the end of a sequence.
      if (output->numel() > 0) std::memset(y, 0, static_cast<size_t>(output->nbytes()));
    }
    Tensor* last_h = this->HasOutput(1) ? this->InferredOutput(1) : nullptr;
    Tensor* last_c = this->HasOutput(2) ? this->InferredOutput(2) : nullptr;
    Source in;
    in.x = Floats(Base::kX);
    in.w = Floats(Base::kW);
    in.r = Floats(Base::kR);
    in.b = Floats(Base::kB);
    in.h = Floats(Base::kInitialH);
    if (Layer::kHasCell) {
      in.c = Floats(Base::kInitialC);
      in.p = Floats(Base::kP);
    }
    const int64_t floats = ScratchFloats(sizes);
    auto* scratch = static_cast<float*>(this->Scratch(floats * sizes.directions * 4));
    ParallelFor(
        sizes.directions,
        [&](int64_t d) {
          detail::RecurrentPass pass = Begin(sizes, in, d, scratch + d * floats);
          Walk(sizes, d, pass, scratch + d * floats, y);
          for (int64_t s = 0; s < sizes.batch; ++s) {
            const int64_t at = sizes.State(d, s);
            if (last_h)
              Copy(sizes.hidden, pass.h + s * sizes.hidden, last_h->mutable_data<float>() + at);
            if (last_c)
              Copy(sizes.hidden, pass.c + s * sizes.hidden, last_c->mutable_data<float>() + at);
          }
        },
        1);
    return true;
  }

 private:
  // The inputs of the node; null if left out.
  struct Source {
    const float *x = nullptr, *w = nullptr, *r = nullptr, *b = nullptr, *h = nullptr, *c = nullptr,
                *p = nullptr;
  };

  // True if transposing R saves time. Each step reads R in vectors across its rows, which is faster
  // from the transpose; but the transposition costs as much as several steps save.
  static bool Packs(const RecurrentSizes& sizes) { return sizes.batch <= 4 && sizes.steps >= 48; }
  // Returns the scratch floats for one direction, a multiple of 16: the gates of all steps, the
  // transposed R, the states, and buffers for a step of GRU.
  static int64_t ScratchFloats(const RecurrentSizes& sizes) {
    const int64_t width = Base::kGates * sizes.hidden, rows = sizes.steps * sizes.batch;
    const int64_t floats = rows * width + (Packs(sizes) ? width * sizes.hidden : 0) +
                           sizes.batch * (3 * sizes.hidden + width);
    return (floats + 15) / 16 * 16;
  }
  const float* Floats(int i) {
    return this->HasInput(i) ? this->DenseInput(i).template data<float>() : nullptr;
  }
  static void Copy(int64_t count, const float* from, float* to) {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  }

  // Computes the gates of all steps without their recurrent part and sets the initial states of
  // direction `d`.
  detail::RecurrentPass Begin(const RecurrentSizes& sizes, const Source& in, int64_t d,
                              float* scratch) const {
    const int64_t hidden = sizes.hidden, width = Base::kGates * hidden;
    const int64_t rows = sizes.steps * sizes.batch;
    detail::RecurrentPass pass = {};
    pass.f = this->Functions(d);
    pass.clip = this->clip_;
    pass.variant = this->variant_;
    pass.hidden = hidden;
    pass.width = width;
    pass.r = in.r + d * width * hidden;
    const float* bias_w = in.b ? in.b + d * 2 * width : nullptr;
    pass.bias_r = in.b ? bias_w + width : nullptr;
    pass.peephole = in.p ? in.p + d * 3 * hidden : nullptr;
    float* gates = scratch;
    float* at = scratch + rows * width;
    if (Packs(sizes)) {
      pass.packed = at;
      for (int64_t i = 0; i < width; ++i)
        for (int64_t j = 0; j < hidden; ++j) at[j * width + i] = pass.r[i * hidden + j];
      at += width * hidden;
    }
    pass.h = at;
    pass.c = pass.h + sizes.batch * hidden;
    pass.reset = pass.c + sizes.batch * hidden;
    pass.recurrent = pass.reset + sizes.batch * hidden;
    for (int64_t s = 0; s < sizes.batch; ++s) {
      const bool has_steps = lengths_[detail::Index(s)] > 0;
      for (int64_t j = 0; j < hidden; ++j) {
        pass.h[s * hidden + j] = in.h && has_steps ? in.h[sizes.State(d, s) + j] : 0;
        pass.c[s * hidden + j] = in.c && has_steps ? in.c[sizes.State(d, s) + j] : 0;
      }
    }
    // With linear_before_reset, GRU adds the recurrent bias of the hidden gate before it applies
    // the reset gate. So this bias is not added here.
    const int64_t added = std::is_same_v<Layer, GruLayer> && this->variant_ ? 2 * hidden : width;
    for (int64_t row = 0; in.b && row < rows; ++row)
      for (int64_t j = 0; j < width; ++j)
        gates[row * width + j] = bias_w[j] + (j < added ? pass.bias_r[j] : 0);
    Gemm<float>({rows, width, sizes.input}, 1, {in.x, sizes.input},
                {in.w + d * width * sizes.input, sizes.input, true},
                {gates, width, in.b ? 1.f : 0.f});
    return pass;
  }
  // Runs all steps of direction `d` and writes the states to `y`, if `y` is not null.
  void Walk(const RecurrentSizes& sizes, int64_t d, const detail::RecurrentPass& pass, float* gates,
            float* y) const {
    int64_t longest = 0;
    bool equal = true;
    for (const int64_t length : lengths_) {
      longest = (std::max)(longest, length);
      equal &= length == lengths_[0];
    }
    const bool reverse = this->IsReverse(d);
    const int64_t stride = sizes.batch_first ? sizes.steps * pass.width : pass.width;
    for (int64_t i = 0; i < longest; ++i) {
      auto active = [&](int64_t s) { return i < lengths_[detail::Index(s)]; };
      auto step = [&](int64_t s) { return reverse ? lengths_[detail::Index(s)] - 1 - i : i; };
      if (equal || !reverse) {
        detail::RecurrentGates(
            Layer(), pass, {0, sizes.batch, gates + sizes.XRow(step(0), 0) * pass.width, stride},
            active);
      } else {  // each sequence is at a different step
        for (int64_t s = 0; s < sizes.batch; ++s)
          if (active(s))
            detail::RecurrentGates(
                Layer(), pass, {s, 1, gates + sizes.XRow(step(s), s) * pass.width, stride}, active);
      }
      for (int64_t s = 0; y && s < sizes.batch; ++s)
        if (active(s)) Copy(pass.hidden, pass.h + s * pass.hidden, y + sizes.Y(step(s), d, s));
    }
  }

  std::vector<int64_t> lengths_;
};

OPKIT_EIGEN_OPERATOR(LSTM, RecurrentEigenOp<LstmLayer>);
OPKIT_EIGEN_OPERATOR(GRU, RecurrentEigenOp<GruLayer>);
OPKIT_EIGEN_OPERATOR(RNN, RecurrentEigenOp<RnnLayer>);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_RECURRENT_HPP_

// com.microsoft.DynamicQuantizeLSTM: an LSTM whose weights are 8-bit integers. X and, in each step,
// the state are quantised to uint8, as ONNX Runtime does. Source:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md, version 1.
#ifndef OPKIT_OPS_QUANTIZED_DYNAMIC_QUANTIZE_LSTM_HPP_
#define OPKIT_OPS_QUANTIZED_DYNAMIC_QUANTIZE_LSTM_HPP_

#include <bit>
#include <limits>

#include "opkit/ops/nn/recurrent.hpp"
#include "opkit/ops/quantized/dynamic_quantize_linear.hpp"
#include "opkit/ops/quantized/integer_product.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the integer nearest to x, of two the even one. |x| must be below 2^22. The sum with 1.5 *
// 2^23 has no bits for a fraction, so the addition rounds, in the default rounding mode.
inline float RoundToEven(float x) {
  constexpr float kNoFraction = 0x1.8p23f;
  return (x + kNoFraction) - kNoFraction;
}

// e^x within 2e-7 of its value, without a branch, so that compilers vectorise loops around it.
// |x| above 87 gives the value at 87. Source of the numbers: expf of the Cephes library.
inline float QuickExp(float x) {
  x = x < -87.f ? -87.f : x;
  x = x > 87.f ? 87.f : x;
  const float twos = RoundToEven(x * 1.44269504f);
  const float rest = x - twos * 0.693359375f + twos * 2.12194440e-4f;
  float sum = 1.9875691500e-4f;
  for (const float next :
       {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    sum = sum * rest + next;
  const int32_t exponent = (static_cast<int32_t>(twos) + 127) << 23;
  return (sum * rest * rest + rest + 1) * std::bit_cast<float>(exponent);
}
// The activations of an LSTM without the attribute `activations`.
struct QuickLstmFunctions {
  float Gate(float x) const { return 1 / (1 + QuickExp(-x)); }
  float Candidate(float x) const { return 1 - 2 / (1 + QuickExp(2 * x)); }
  float Output(float x) const { return Candidate(x); }
};
struct NamedLstmFunctions {
  const RecurrentFunction* f;
  float Gate(float x) const { return f[0](x); }
  float Candidate(float x) const { return f[1](x); }
  float Output(float x) const { return f[2](x); }
};

// The parameters that all elements of a state share. `bound` limits the numbers before an
// activation.
struct LstmCells {
  float bound;
  bool ties_forget;       // the attribute input_forget
  const float* peephole;  // [3 * hidden]: input, output, forget
  int64_t hidden;

  // Computes elements [first, first + n), n at most 64, of a sequence's next state. `gates` are the
  // sums of the input, output, forget and cell gates, [4 * hidden].
  static constexpr int64_t kBlock = 64;
  template <class Functions>
  void Step(const Functions& f, const float* gates, int64_t first, int64_t n, float* c,
            float* h) const {
    // Local arrays, because the compiler does not know that the others lie apart.
    float in[kBlock], forget[kBlock], cell[kBlock], out[kBlock];
    const auto limited = [limit = bound](float x) {
      return x > limit ? limit : x < -limit ? -limit : x;
    };
    const float *g = gates + first, *p = peephole + first, *old = c + first;
    for (int64_t j = 0; j < n; ++j) in[j] = f.Gate(limited(g[j] + p[j] * old[j]));
    if (ties_forget)
      for (int64_t j = 0; j < n; ++j) forget[j] = 1 - in[j];
    else
      for (int64_t j = 0; j < n; ++j)
        forget[j] = f.Gate(limited(g[2 * hidden + j] + p[2 * hidden + j] * old[j]));
    for (int64_t j = 0; j < n; ++j)
      cell[j] = forget[j] * old[j] + in[j] * f.Candidate(limited(g[3 * hidden + j]));
    for (int64_t j = 0; j < n; ++j)
      out[j] = f.Gate(limited(g[hidden + j] + p[hidden + j] * cell[j])) * f.Output(cell[j]);
    std::copy(cell, cell + n, c + first);
    std::copy(out, out + n, h + first);
  }
};

inline void InferDynamicQuantizeLstm(InferenceContext& c) {
  enum { kX, kW, kR, kB, kLengths, kH, kC, kP, kWScale, kWZero, kRScale, kRZero };
  const std::string& op = c.def().type();
  if (c.Arg<int64_t>("layout") != 0)
    Throw(ErrorCode::kUnsupported, op, ": layout is ", c.Arg<int64_t>("layout"), ", expected 0");
  const auto extent = [&](int i, int axis) {
    const SymbolicShape& shape = c.input_shape(i);
    if (!shape.has_rank()) return Dim();
    if (shape.rank() != 3)
      Throw(ErrorCode::kInvalidArgument, op, ": input ", i, " is ", ToString(c.input(i)),
            ", expected rank 3");
    return shape[axis];
  };
  const Dim directions = RecurrentDirections(c.def());
  const Dim steps = extent(kX, 0), batch = extent(kX, 1), input = extent(kX, 2);
  Dim hidden = extent(kR, 1);
  if (const int64_t given = c.Arg<int64_t>("hidden_size", 0); given != 0) {
    if (given < 0 || !Dim::Compatible(hidden, given))
      Throw(ErrorCode::kInvalidArgument, op, ": hidden_size is ", given, ", but R is ",
            ToString(c.input(kR)));
    hidden = given;
  }
  constexpr int64_t kMost = int64_t{1} << 31;  // so that its products fit in an int64
  const auto times = [&](int64_t n) {
    if (!hidden.is_known()) return Dim();
    if (hidden.value() > kMost)
      Throw(ErrorCode::kInvalidArgument, op, ": the hidden size ", hidden.value(), " is too large");
    return Dim(n * hidden.value());
  };
  const SymbolicShape state{directions, batch, hidden};
  const auto expect = [&](int i, DType dtype, const SymbolicShape& shape) {
    if (c.HasInput(i)) c.SetInput(i, dtype, shape);
  };
  expect(kX, DType::kFloat32, {steps, batch, input});
  for (const int i : {kW, kR}) ExpectDType(c, i, ByteTypes::DTypes());
  expect(kW, c.input_dtype(kW), {directions, input, times(4)});
  expect(kR, c.input_dtype(kR), {directions, hidden, times(4)});
  expect(kB, DType::kFloat32, {directions, times(8)});
  expect(kLengths, DType::kInt32, {batch});
  for (const int i : {kH, kC}) expect(i, DType::kFloat32, state);
  expect(kP, DType::kFloat32, {directions, times(3)});
  for (const auto& [i, dtype] :
       {std::pair{int{kWScale}, DType::kFloat32}, std::pair{int{kWZero}, c.input_dtype(kW)},
        std::pair{int{kRScale}, DType::kFloat32}, std::pair{int{kRZero}, c.input_dtype(kR)}}) {
    if (!c.HasInput(i)) continue;
    const SymbolicShape& shape = c.input_shape(i);
    if (shape.has_rank() && shape.rank() != 1 && shape.rank() != 2)
      Throw(ErrorCode::kInvalidArgument, op, ": input ", i, " is ", ToString(c.input(i)),
            ", expected one element for each direction, or for each column of its weights");
    if (!shape.has_rank())
      c.SetInput(i, dtype, {});
    else
      expect(i, dtype,
             shape.rank() == 1 ? SymbolicShape{directions} : SymbolicShape{directions, times(4)});
  }
  if (c.num_outputs() > 0) c.SetOutput(0, DType::kFloat32, {steps, directions, batch, hidden});
  for (int o = 1; o < c.num_outputs(); ++o) c.SetOutput(o, DType::kFloat32, state);
}

}  // namespace detail

// Keeps the packed weights of a plan's constants from the first run on.
class DynamicQuantizeLstmOp final : public RecurrentOpBase<LstmLayer> {
 public:
  using RecurrentOpBase::RecurrentOpBase;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    bool constant = true;
    for (const size_t i : {size_t{kW}, size_t{kR}, size_t{kWScale}, size_t{kRScale}})
      constant &= i < query.inputs.size() && query.inputs[i].constant;
    for (const size_t i : {size_t{kWZero}, size_t{kRZero}})
      constant &= i >= query.inputs.size() || query.inputs[i].constant ||
                  query.inputs[i].dtype == DType::kUndefined;
    return {detail::IntegerConfig(constant, kConstantWeights)};
  }

  bool RunOnDevice() override {
    Infer();
    RecurrentSizes sizes;
    const Shape& x = Input(kX).shape();
    sizes.steps = x[0], sizes.batch = x[1], sizes.input = x[2];
    sizes.hidden = Input(kR).dim(1);
    sizes.directions = directions_;
    std::vector<int64_t> lengths;
    ReadLengths(sizes, lengths);
    if (!(config() && config()->variant.ends_with(kConstantWeights)) || weights_.empty()) {
      weights_.resize(2);
      Pack(weights_[0], kW, kWScale, kWZero);
      Pack(weights_[1], kR, kRScale, kRZero);
    }
    const int64_t states = sizes.directions * sizes.batch * sizes.hidden;
    h_ = Numbers(kInitialH, states);
    c_ = Numbers(kInitialC, states);
    float* y = HasOutput(0) ? InferredOutput(0)->mutable_data<float>() : nullptr;
    if (y) std::fill_n(y, states * sizes.steps, 0.f);
    for (int64_t d = 0; d < sizes.directions; ++d) RunDirection(sizes, lengths, d, y);
    const std::vector<float>* last[] = {&h_, &c_};
    for (int o = 1; o < OutputSize(); ++o)
      if (HasOutput(o))
        std::copy(last[o - 1]->begin(), last[o - 1]->end(),
                  InferredOutput(o)->mutable_data<float>());
    return true;
  }

 private:
  enum { kWScale = 8, kWZero, kRScale, kRZero };
  static constexpr const char* kConstantWeights = "constant weights";

  // The matrices of all directions, their scales and zero points.
  struct Weights {
    std::vector<detail::PackedColumns> matrices;
    std::vector<float> scales;
    std::vector<int32_t> zeros;
    bool is_signed = false;
  };

  std::vector<float> Numbers(int i, int64_t left_out) {
    return HasInput(i) ? detail::NumbersOf<float>(Input(i))
                       : std::vector<float>(detail::Index(left_out));
  }
  void Pack(Weights& weights, int matrix, int scale, int zero) {
    const Tensor& all = DenseInput(matrix);
    const int64_t rows = all.dim(1), columns = all.dim(2);
    weights.is_signed = all.dtype() == DType::kInt8;
    weights.matrices.resize(detail::Index(directions_));
    for (int64_t d = 0; d < directions_; ++d)
      weights.matrices[detail::Index(d)].Pack(
          {static_cast<const uint8_t*>(all.raw_data()) + d * rows * columns, rows, columns,
           weights.is_signed});
    weights.scales = detail::NumbersOf<float>(Input(scale));
    weights.zeros.assign(detail::Index(directions_), 0);
    if (HasInput(zero)) weights.zeros = detail::ZeroPoints(Input(zero));
  }
  // Computes to[row] = base[row] + a[row] times the weights of a direction, [4 * hidden], with a
  // quantised as a whole.
  void Multiply(const float* a, int64_t rows, const Weights& weights, int64_t direction,
                const std::vector<const float*>& base, float* to) {
    const detail::PackedColumns& b = weights.matrices[detail::Index(direction)];
    const int64_t k = b.k(), columns = b.columns();
    const auto found = detail::DynamicScale::Of(a, rows * k);
    bytes_.resize(detail::Index(rows * k));
    found.Quantize8(a, rows * k, bytes_.data());
    rows_.Resize(rows, k);
    for (int64_t row = 0; row < rows; ++row) rows_.Set(row, bytes_.data() + row * k, k, false);
    const int32_t a_zero = found.zero_point;
    const bool by_column = static_cast<int64_t>(weights.scales.size()) > directions_;
    const bool zero_by_column = static_cast<int64_t>(weights.zeros.size()) > directions_;
    const float* scales = weights.scales.data() + direction * (by_column ? columns : 1);
    const int32_t* zeros = weights.zeros.data() + direction * (zero_by_column ? columns : 1);
    const detail::IntegerProduct product{
        rows_, b, rows, {&a_zero, 0}, {zeros, zero_by_column}, false, weights.is_signed};
    product.Run(
        [&](int64_t row, int64_t column, int64_t count, const int32_t* sums) {
          const float* from = base[detail::Index(row)] + column;
          const float a_scale = found.scale;
          float* out = to + row * columns + column;
          if (by_column)
            for (int64_t j = 0; j < count; ++j)
              out[j] = from[j] + static_cast<float>(sums[j]) * (a_scale * scales[column + j]);
          else
            for (int64_t j = 0; j < count; ++j)
              out[j] = from[j] + static_cast<float>(sums[j]) * (a_scale * *scales);
        },
        loops_);
  }
  void RunDirection(const RecurrentSizes& sizes, const std::vector<int64_t>& lengths, int64_t d,
                    float* y) {
    const int64_t hidden = sizes.hidden, columns = 4 * hidden, batch = sizes.batch;
    int64_t steps = 0;
    for (const int64_t length : lengths) steps = (std::max)(steps, length);
    float *h = h_.data() + d * batch * hidden, *c = c_.data() + d * batch * hidden;
    for (int64_t s = 0; s < batch; ++s)
      if (lengths[detail::Index(s)] == 0) {
        std::fill_n(h + s * hidden, hidden, 0.f);
        std::fill_n(c + s * hidden, hidden, 0.f);
      }
    if (steps == 0 || hidden == 0) return;
    std::vector<float> bias = Numbers(kB, sizes.directions * 2 * columns);
    bias.erase(bias.begin(), bias.begin() + d * 2 * columns);
    for (int64_t j = 0; j < columns; ++j)
      bias[detail::Index(j)] += bias[detail::Index(columns + j)];
    const std::vector<float> peephole = Numbers(kP, sizes.directions * 3 * hidden);
    const detail::LstmCells cells{clip_ > 0 ? clip_ : (std::numeric_limits<float>::max)(), variant_,
                                  peephole.data() + d * 3 * hidden, hidden};
    of_x_.resize(detail::Index(steps * batch * columns));
    gates_.resize(detail::Index(batch * columns));
    std::vector<const float*> base(detail::Index(steps * batch), bias.data());
    Multiply(DenseInput(kX).data<float>(), steps * batch, weights_[0], d, base, of_x_.data());
    base.resize(detail::Index(batch));
    const detail::NamedLstmFunctions named{Functions(d)};
    for (int64_t i = 0; i < steps; ++i) {
      const auto step_of = [&](int64_t s) {
        const int64_t length = lengths[detail::Index(s)];
        return i >= length ? -1 : IsReverse(d) ? length - 1 - i : i;
      };
      for (int64_t s = 0; s < batch; ++s)
        base[detail::Index(s)] =
            of_x_.data() + sizes.XRow((std::max)(step_of(s), int64_t{0}), s) * columns;
      Multiply(h, batch, weights_[1], d, base, gates_.data());
      constexpr int64_t kBlock = detail::LstmCells::kBlock;
      const int64_t blocks = (hidden + kBlock - 1) / kBlock;
      ParallelForRange(batch * blocks, 64, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          const int64_t s = task / blocks, first = task % blocks * kBlock;
          if (step_of(s) < 0) continue;
          const int64_t n = (std::min)(kBlock, hidden - first);
          const float* gates = gates_.data() + s * columns;
          if (is_plain_)
            cells.Step(detail::QuickLstmFunctions(), gates, first, n, c + s * hidden,
                       h + s * hidden);
          else
            cells.Step(named, gates, first, n, c + s * hidden, h + s * hidden);
          if (y)
            std::copy(h + s * hidden + first, h + s * hidden + first + n,
                      y + sizes.Y(step_of(s), d, s) + first);
        }
      });
    }
  }

  const bool is_plain_ = GetRepeatedArgument<std::string>("activations").empty();
  std::vector<Weights> weights_;  // of X, of the state
  std::vector<float> h_, c_, of_x_, gates_;
  std::vector<uint8_t> bytes_;
  detail::PackedRows rows_;
  const detail::IntegerLoops loops_ = detail::AllIntegerLoops()[0];
};

OPKIT_DOMAIN_OPERATOR("com.microsoft", DynamicQuantizeLSTM, kNone, DynamicQuantizeLstmOp)
    .FillUsing([](OpSchema& schema) {
      const std::string doc = StrCat(
          "LSTM with weights of 8-bit integers. X as a whole and, in each step, the states of the "
          "batch are quantised to uint8 as DynamicQuantizeLinear does; sums are int32.",
          detail::kNoGradientOfRounding);
      detail::FillRecurrentSchema<LstmLayer>(schema, doc.c_str());
      const std::vector<DType> floats{DType::kFloat32};
      for (const int i : {0, 3, 5})
        schema.Input(i,
                     i == 0   ? "X"
                     : i == 3 ? "B"
                              : "initial_h",
                     i == 0   ? "[steps, batch, input]"
                     : i == 3 ? "biases of W, then of R, [directions, 8 * hidden]; optional: 0"
                              : "[directions, batch, hidden]; optional: 0",
                     floats);
      schema.NumInputs(11, 12)
          .Input(1, "W", "weights of X, [directions, input, 4 * hidden]", ByteTypes::DTypes())
          .Input(2, "R", "weights of the state, [directions, hidden, 4 * hidden]",
                 ByteTypes::DTypes())
          .Input(6, "initial_c", "shaped as initial_h; optional: 0", floats)
          .Input(7, "P",
                 "peepholes of the input, output and forget gate, [directions, 3 * hidden]; "
                 "optional: 0",
                 floats)
          .Input(8, "W_scale", "[directions], or one for each column [directions, 4 * hidden]",
                 floats)
          .Input(9, "W_zero_point", "shaped as W_scale, of the type of W; optional: 0",
                 ByteTypes::DTypes())
          .Input(10, "R_scale", "[directions], or one for each column [directions, 4 * hidden]",
                 floats)
          .Input(11, "R_zero_point", "shaped as R_scale, of the type of R; optional: 0",
                 ByteTypes::DTypes())
          .Output(2, "Y_c", "the last cell of each sequence, shaped as initial_h; optional")
          .Arg<int64_t>("input_forget", "1: the forget gate is 1 - the input gate", 0)
          .Infer(&detail::InferDynamicQuantizeLstm);
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_QUANTIZED_DYNAMIC_QUANTIZE_LSTM_HPP_

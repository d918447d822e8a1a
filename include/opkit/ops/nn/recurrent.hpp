// LSTM, GRU and RNN: recurrent layers over a batch of sequences. Sources:
// https://onnx.ai/onnx/operators/onnx__LSTM.html and the pages of GRU and RNN.
#ifndef OPKIT_OPS_NN_RECURRENT_HPP_
#define OPKIT_OPS_NN_RECURRENT_HPP_

#include "opkit/ops/support/element_sum.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/recurrent_function.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The differences between the layers: the gates, in the order of the weights; the attribute that
// selects a variant of the equations; the default activations.
struct LstmLayer {
  static constexpr int kGates = 4;  // input, output, forget, cell
  static constexpr bool kHasCell = true;
  static constexpr std::string_view kVariant = "input_forget";
  static std::vector<std::string> Functions() { return {"Sigmoid", "Tanh", "Tanh"}; }
};
struct GruLayer {
  static constexpr int kGates = 3;  // update, reset, hidden
  static constexpr bool kHasCell = false;
  static constexpr std::string_view kVariant = "linear_before_reset";
  static std::vector<std::string> Functions() { return {"Sigmoid", "Tanh"}; }
};
struct RnnLayer {
  static constexpr int kGates = 1;
  static constexpr bool kHasCell = false;
  static constexpr std::string_view kVariant = "";
  static std::vector<std::string> Functions() { return {"Tanh"}; }
};

// The indices of the inputs. Only LSTM has the last two.
struct RecurrentInputs {
  enum { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kP };
};

// The extents of a layer, and offsets in its tensors. Offsets are in elements.
struct RecurrentSizes {
  int64_t steps = 0, batch = 0, input = 0, hidden = 0, directions = 1;
  bool batch_first = false;  // layout 1

  RecurrentSizes() = default;
  // Reads the extents of a layer from the shapes of X and R.
  RecurrentSizes(const Shape& x, const Shape& r, bool is_batch_first)
      : steps(x[is_batch_first ? 1 : 0]),
        batch(x[is_batch_first ? 0 : 1]),
        input(x[2]),
        hidden(r[2]),
        directions(r[0]),
        batch_first(is_batch_first) {}

  // XRow: the row of X for one step of a sequence. Y: the offset in Y of that step in one
  // direction.
  OPKIT_HOST_DEVICE int64_t XRow(int64_t step, int64_t sequence) const {
    return batch_first ? sequence * steps + step : step * batch + sequence;
  }
  OPKIT_HOST_DEVICE int64_t Y(int64_t step, int64_t direction, int64_t sequence) const {
    return (batch_first ? (sequence * steps + step) * directions + direction
                        : (step * directions + direction) * batch + sequence) *
           hidden;
  }
  // The offset in the tensors of initial and last states.
  OPKIT_HOST_DEVICE int64_t State(int64_t direction, int64_t sequence) const {
    return (batch_first ? sequence * directions + direction : direction * batch + sequence) *
           hidden;
  }
};

namespace detail {

// Returns the number of directions, 1 or 2. Throws kInvalidArgument for an unknown name.
inline int64_t RecurrentDirections(const OperatorDef& def) {
  constexpr int kBidirectional = 2;  // position of "bidirectional" in the schema's list
  return EnumeratorOf<int>(def.type(), def.args(), "direction") == kBidirectional ? 2 : 1;
}

}  // namespace detail

// The base of the kernels of a layer. Reads attributes, extents and the lengths of the sequences.
// Base is a StandardOperator of some device.
template <class Layer, class Base = StandardOperator>
class RecurrentOpBase : public Base, protected RecurrentInputs {
 public:
  RecurrentOpBase(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : Base(def, ws, config) {
    const std::vector<std::string> each = Layer::Functions();
    auto names = this->template GetRepeatedArgument<std::string>("activations");
    const size_t expected = each.size() * static_cast<size_t>(directions_);
    if (names.empty())
      for (int64_t d = 0; d < directions_; ++d) names.insert(names.end(), each.begin(), each.end());
    if (names.size() != expected)
      Throw(ErrorCode::kInvalidArgument, this->type(), ": ", names.size(), " activations ", names,
            ", expected ", expected, ": ", each.size(), " for each direction");
    functions_ = RecurrentFunctions(
        names, this->template GetRepeatedArgument<float>("activation_alpha"),
        this->template GetRepeatedArgument<float>("activation_beta"), this->type());
    if (clip_ < 0)
      Throw(ErrorCode::kInvalidArgument, this->type(), ": clip is ", clip_,
            ", expected a bound above 0");
  }

 protected:
  static constexpr int kGates = Layer::kGates;

  RecurrentSizes SizesNow() {
    this->Infer();  // refuses inputs whose shapes do not fit
    return RecurrentSizes(this->Input(kX).shape(), this->Input(kR).shape(), batch_first_);
  }
  bool IsReverse(int64_t direction) const { return direction == 1 || direction_ == "reverse"; }
  // Returns the activations f, g, h of a direction.
  const RecurrentFunction* Functions(int64_t direction) const {
    return functions_.data() + static_cast<size_t>(direction) * Layer::Functions().size();
  }
  // Reads the length of each sequence. Throws kOutOfRange for a length that is negative or larger
  // than the steps of X.
  void ReadLengths(const RecurrentSizes& sizes, std::vector<int64_t>& lengths) {
    lengths.assign(static_cast<size_t>(sizes.batch), sizes.steps);
    if (!this->HasInput(kLengths)) return;
    const int32_t* given = this->DenseInput(kLengths).template data<int32_t>();
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (given[i] < 0 || given[i] > sizes.steps)
        Throw(ErrorCode::kOutOfRange, this->type(), ": sequence_lens[", i, "] is ", given[i],
              ", but X has ", sizes.steps, " steps");
      lengths[i] = given[i];
    }
  }

  static bool IsVariant(const OperatorDef& def) {
    return !Layer::kVariant.empty() && def.args().Get<int64_t>(Layer::kVariant, 0) != 0;
  }

 private:
  const std::string direction_ = this->template GetSingleArgument<std::string>("direction");

 protected:
  const int64_t directions_ = detail::RecurrentDirections(this->def());
  const bool batch_first_ = this->template GetSingleArgument<int64_t>("layout") != 0;
  const bool variant_ = IsVariant(this->def());
  const float clip_ = this->template GetSingleArgument<float>("clip", 0.f);  // 0: none

 private:
  std::vector<RecurrentFunction> functions_;
};

namespace detail {

// The equations of one element of the state. C is float or double.
template <class C>
struct RecurrentUnit {
  const RecurrentFunction* f;  // the activation functions f, g and h of ONNX
  C clip;                      // bound of the activations' inputs; 0: no bound
  bool variant;

  OPKIT_HOST_DEVICE C Apply(int function, C x) const {
    if (clip > 0) x = x > clip ? clip : x < -clip ? -clip : x;
    return f[function](x);
  }
  // Returns the state of LSTM, and renews its cell. `gates` are the sums of the products and the
  // biases, `peephole` has the weights of the input, the output and the forget gate.
  OPKIT_HOST_DEVICE C Lstm(const C (&gates)[4], const C (&peephole)[3], C& cell) const {
    const C in = Apply(0, gates[0] + peephole[0] * cell);
    const C forget = variant ? 1 - in : Apply(0, gates[2] + peephole[2] * cell);
    cell = forget * cell + in * Apply(1, gates[3]);
    const C out = Apply(0, gates[1] + peephole[1] * cell);
    return out * f[2](cell);  // not clipped, as in ONNX Runtime
  }
  // Returns the state of GRU. `candidate` is the sum of the hidden gate.
  OPKIT_HOST_DEVICE C Gru(C update, C candidate, C state) const {
    return (1 - update) * Apply(1, candidate) + update * state;
  }
};

// The values that one step of one sequence, in one direction, reads and writes. All are double.
struct RecurrentState {
  RecurrentUnit<double> unit;
  int64_t hidden;
  const double *r, *bias_r;   // [gates * hidden, hidden], [gates * hidden]
  const double* peephole;     // [3 * hidden]: input, output, forget
  std::vector<double> gates;  // W x + Wb, [gates * hidden]
  std::vector<double> h, c, next;

  // Returns row `row` of R times a state, plus its bias.
  double Recur(int64_t row, const std::vector<double>& state) const {
    double sum = bias_r[row];
    for (int64_t i = 0; i < hidden; ++i) sum += r[row * hidden + i] * state[Index(i)];
    return sum;
  }
  double Gate(int64_t row) const { return gates[Index(row)]; }
};

inline void RecurrentStep(LstmLayer, RecurrentState& s) {
  const int64_t n = s.hidden;
  s.next = s.h;
  for (int64_t j = 0; j < n; ++j) {
    double gates[4];
    for (int64_t gate = 0; gate < 4; ++gate)
      gates[gate] = s.Gate(gate * n + j) + s.Recur(gate * n + j, s.h);
    s.next[Index(j)] = s.unit.Lstm(gates, {s.peephole[j], s.peephole[n + j], s.peephole[2 * n + j]},
                                   s.c[Index(j)]);
  }
  s.h.swap(s.next);
}
inline void RecurrentStep(GruLayer, RecurrentState& s) {
  const int64_t n = s.hidden;
  std::vector<double> update(static_cast<size_t>(n)), reset = update, kept = update;
  for (int64_t j = 0; j < n; ++j) {
    const auto at = static_cast<size_t>(j);
    update[at] = s.unit.Apply(0, s.Gate(j) + s.Recur(j, s.h));
    reset[at] = s.unit.Apply(0, s.Gate(n + j) + s.Recur(n + j, s.h));
    kept[at] = reset[at] * s.h[at];
  }
  s.next = s.h;
  for (int64_t j = 0; j < n; ++j) {
    const auto at = static_cast<size_t>(j);
    const double recurrent =
        s.unit.variant ? reset[at] * s.Recur(2 * n + j, s.h) : s.Recur(2 * n + j, kept);
    s.next[at] = s.unit.Gru(update[at], s.Gate(2 * n + j) + recurrent, s.h[at]);
  }
  s.h.swap(s.next);
}
inline void RecurrentStep(RnnLayer, RecurrentState& s) {
  s.next = s.h;
  for (int64_t j = 0; j < s.hidden; ++j)
    s.next[Index(j)] = s.unit.Apply(0, s.Gate(j) + s.Recur(j, s.h));
  s.h.swap(s.next);
}

template <class Layer>
void InferRecurrent(InferenceContext& c) {
  using In = RecurrentInputs;
  const std::string& op = c.def().type();
  DType dtype = DType::kUndefined;
  for (int i = 0; i < c.num_inputs(); ++i)
    if (dtype == DType::kUndefined && c.HasInput(i) && i != In::kLengths) dtype = c.input_dtype(i);
  const bool batch_first = c.Arg<int64_t>("layout") != 0;
  const Dim directions = RecurrentDirections(c.def());
  auto extent = [&](int i, int axis) {
    const SymbolicShape& shape = c.input_shape(i);
    if (!shape.has_rank()) return Dim();
    if (shape.rank() != 3)
      Throw(ErrorCode::kInvalidArgument, op, ": input ", i, " is ", ToString(c.input(i)),
            ", expected rank 3");
    return shape[axis];
  };
  const Dim steps = extent(In::kX, batch_first ? 1 : 0);
  const Dim batch = extent(In::kX, batch_first ? 0 : 1);
  const Dim input = extent(In::kX, 2);
  Dim hidden = extent(In::kR, 2);
  constexpr int64_t kMost = int64_t{1} << 31;  // so that its products fit in an int64
  if (const int64_t given = c.Arg<int64_t>("hidden_size", 0); given != 0) {
    if (given < 0 || given > kMost || !Dim::Compatible(hidden, given))
      Throw(ErrorCode::kInvalidArgument, op, ": hidden_size is ", given, ", but R is ",
            ToString(c.input(In::kR)));
    hidden = given;
  }
  auto times = [&](int64_t n) {
    if (!hidden.is_known()) return Dim();
    if (hidden.value() > kMost)
      Throw(ErrorCode::kInvalidArgument, op, ": R is ", ToString(c.input(In::kR)),
            ", whose last extent is too large");
    return Dim(n * hidden.value());
  };
  const SymbolicShape state = batch_first ? SymbolicShape{batch, directions, hidden}
                                          : SymbolicShape{directions, batch, hidden};
  auto expect = [&](int i, const SymbolicShape& shape) {
    if (c.HasInput(i)) c.SetInput(i, i == In::kLengths ? DType::kInt32 : dtype, shape);
  };
  constexpr int kGates = Layer::kGates;
  expect(In::kW, {directions, times(kGates), input});
  expect(In::kR, {directions, times(kGates), hidden});
  expect(In::kB, {directions, times(2 * kGates)});
  expect(In::kLengths, {batch});
  expect(In::kInitialH, state);
  expect(In::kInitialC, state);
  expect(In::kP, {directions, times(3)});
  if (c.num_outputs() > 0)
    c.SetOutput(0, dtype,
                batch_first ? SymbolicShape{batch, steps, directions, hidden}
                            : SymbolicShape{steps, directions, batch, hidden});
  for (int o = 1; o < c.num_outputs(); ++o) c.SetOutput(o, dtype, state);
}

inline OpCost RecurrentCost(const OperatorDef&, const std::vector<TensorInfo>& inputs,
                            const std::vector<TensorInfo>& outputs) {
  OpCost cost = TrafficCost(0, inputs, outputs);
  const SymbolicShape &x = inputs[0].shape, &w = inputs[1].shape, &r = inputs[2].shape;
  if (x.is_known() && w.is_known() && r.is_known())
    cost.flops = 2 * static_cast<uint64_t>(x.ToShape().NumelBetween(0, 2)) *
                 (OpSchema::Elements(inputs[1]) + OpSchema::Elements(inputs[2]));
  return cost;
}

template <class Layer>
void FillRecurrentSchema(OpSchema& schema, const char* doc) {
  const std::vector<DType> types = FloatTypes::DTypes();
  schema.Doc(doc)
      .NumInputs(3, Layer::kHasCell ? 8 : 6)
      .NumOutputs(0, Layer::kHasCell ? 3 : 2)
      .Input(0, "X", "[steps, batch, input], or [batch, steps, input] with layout 1", types)
      .Input(1, "W", "weights of X by gate, [directions, gates * hidden, input]", types)
      .Input(2, "R", "weights of the state by gate, [directions, gates * hidden, hidden]", types)
      .Input(3, "B", "biases of W, then of R, [directions, 2 * gates * hidden]; optional: 0", types)
      .Input(4, "sequence_lens", "steps of each sequence, [batch]; optional: all", {DType::kInt32})
      .Input(5, "initial_h",
             "[directions, batch, hidden], or [batch, directions, hidden] with layout 1; optional: "
             "0",
             types)
      .Output(0, "Y",
              "the state after each step, 0 beyond a sequence's end; [steps, directions, batch, "
              "hidden], or [batch, steps, directions, hidden] with layout 1; optional")
      .Output(1, "Y_h",
              "the last state of each sequence, 0 where it has no steps; shaped as initial_h; "
              "optional");
  schema.Arg<int64_t>("hidden_size", "elements of the state; by default as R says")
      .Arg("direction", "which way the steps go", {"forward", "reverse", "bidirectional"})
      .template Arg<int64_t>("layout", "0: steps first; 1: batch first", 0)
      .template Arg<float>("clip", "bound of the gates before their activation; by default none")
      .template Arg<std::vector<std::string>>(
          "activations",
          "for each direction: Sigmoid, Tanh, Relu, Affine, LeakyRelu, ThresholdedRelu, "
          "ScaledTanh, HardSigmoid, Elu, Softsign or Softplus",
          Layer::Functions())
      .template Arg<std::vector<float>>("activation_alpha",
                                        "of the activations that use it, in their order")
      .template Arg<std::vector<float>>("activation_beta",
                                        "of the activations that use it, in their order")
      .Cost(&RecurrentCost)
      .Infer(&InferRecurrent<Layer>);
}

}  // namespace detail

namespace detail {

// The inputs that have a gradient, in the order of the outputs of the gradient's operator.
inline constexpr int kRecurrentSlopes[] = {RecurrentInputs::kX,        RecurrentInputs::kW,
                                           RecurrentInputs::kR,        RecurrentInputs::kB,
                                           RecurrentInputs::kInitialH, RecurrentInputs::kInitialC,
                                           RecurrentInputs::kP};
inline constexpr int kRecurrentInputs = 8;

// The gradient of a layer: one node for all inputs, whose operator stands in
// recurrent_gradient.hpp. It reads the inputs of the layer, and behind them the gradients of its
// outputs.
class RecurrentGradient final : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;

 private:
  void Make() override {
    GiveTogether(Def().type() + "Gradient", kRecurrentInputs,
                 {std::begin(kRecurrentSlopes), std::end(kRecurrentSlopes)}, Def().args());
  }
};
OPKIT_REGISTER_GRADIENT(LSTM, RecurrentGradient);
OPKIT_REGISTER_GRADIENT(GRU, RecurrentGradient);
OPKIT_REGISTER_GRADIENT(RNN, RecurrentGradient);

}  // namespace detail

// The reference kernel. Computes in double for every type.
template <class Layer>
class RecurrentOp final : public RecurrentOpBase<Layer> {
  using Base = RecurrentOpBase<Layer>;

 public:
  using Base::Base;

  bool RunOnDevice() override {
    const RecurrentSizes sizes = this->SizesNow();
    std::vector<int64_t> lengths;
    this->ReadLengths(sizes, lengths);
    const int64_t rows = Base::kGates * sizes.hidden;
    const std::vector<double> x = Numbers(Base::kX, 0), w = Numbers(Base::kW, 0),
                              r = Numbers(Base::kR, 0),
                              b = Numbers(Base::kB, sizes.directions * 2 * rows),
                              p = Numbers(Base::kP, sizes.directions * 3 * sizes.hidden);
    const int64_t states = sizes.directions * sizes.batch * sizes.hidden;
    std::vector<double> h = Numbers(Base::kInitialH, states), c = Numbers(Base::kInitialC, states);
    std::vector<double> y(static_cast<size_t>(states * sizes.steps));
    ParallelFor(sizes.directions * sizes.batch, [&](int64_t at) {
      const int64_t d = at / sizes.batch, sequence = at % sizes.batch;
      const int64_t length = lengths[detail::Index(sequence)];
      const int64_t state = sizes.State(d, sequence);
      detail::RecurrentState s;
      s.unit = {this->Functions(d), static_cast<double>(this->clip_), this->variant_};
      s.hidden = sizes.hidden;
      s.r = r.data() + d * rows * sizes.hidden;
      s.bias_r = b.data() + d * 2 * rows + rows;
      s.peephole = p.data() + d * 3 * sizes.hidden;
      s.gates.resize(static_cast<size_t>(rows));
      const int64_t given = length > 0 ? sizes.hidden : 0;
      s.h.assign(h.begin() + state, h.begin() + state + given);
      s.c.assign(c.begin() + state, c.begin() + state + given);
      s.h.resize(static_cast<size_t>(sizes.hidden));
      s.c.resize(static_cast<size_t>(sizes.hidden));
      for (int64_t i = 0; i < length; ++i) {
        const int64_t step = this->IsReverse(d) ? length - 1 - i : i;
        const double* in = x.data() + sizes.XRow(step, sequence) * sizes.input;
        for (int64_t row = 0; row < rows; ++row) {
          const double* weights = w.data() + (d * rows + row) * sizes.input;
          double sum = b[detail::Index(d * 2 * rows + row)];
          for (int64_t k = 0; k < sizes.input; ++k) sum += weights[k] * in[k];
          s.gates[detail::Index(row)] = sum;
        }
        detail::RecurrentStep(Layer(), s);
        std::copy(s.h.begin(), s.h.end(), y.begin() + sizes.Y(step, d, sequence));
      }
      std::copy(s.h.begin(), s.h.end(), h.begin() + state);
      std::copy(s.c.begin(), s.c.end(), c.begin() + state);
    });
    const std::vector<double>* outputs[] = {&y, &h, &c};
    for (int o = 0; o < this->OutputSize(); ++o)
      if (this->HasOutput(o)) Store(*outputs[o], this->InferredOutput(o));
    return true;
  }

 private:
  // Returns the elements of an input as double, or `left_out` zeros if the node leaves the input
  // out.
  std::vector<double> Numbers(int i, int64_t left_out) {
    const int last = Layer::kHasCell ? int{Base::kP} : int{Base::kInitialH};
    return this->HasInput(i) && i <= last ? detail::NumbersOf<double>(this->Input(i))
                                          : std::vector<double>(static_cast<size_t>(left_out));
  }
  static void Store(const std::vector<double>& values, Tensor* output) {
    FloatTypes::Visit(output->dtype(), [&]<class T>() {
      T* out = output->mutable_data<T>();
      for (size_t k = 0; k < values.size(); ++k) out[k] = detail::ElementOfSum<T>(values[k]);
    });
  }
};

OPKIT_STANDARD_OPERATOR(LSTM, kMaker, RecurrentOp<LstmLayer>).FillUsing([](OpSchema& schema) {
  detail::FillRecurrentSchema<LstmLayer>(
      schema,
      "Long short-term memory. With i, o, f = f(x W + h R + P c + b) for the input, output and "
      "forget gates: c = f * c + i * g(x W + h R + b), h = o * h(c). Gates of the weights are "
      "in the order input, output, forget, cell; activations are f, g, h.");
  const std::vector<DType> types = FloatTypes::DTypes();
  schema.Input(6, "initial_c", "shaped as initial_h; optional: 0", types)
      .Input(7, "P",
             "peepholes of the input, output and forget gate, [directions, 3 * hidden]; "
             "optional: 0",
             types)
      .Output(2, "Y_c", "the last cell of each sequence, shaped as initial_h; optional")
      .Arg<int64_t>("input_forget", "1: the forget gate is 1 - the input gate", 0);
});

OPKIT_STANDARD_OPERATOR(GRU, kMaker, RecurrentOp<GruLayer>).FillUsing([](OpSchema& schema) {
  detail::FillRecurrentSchema<GruLayer>(schema,
                                        "Gated recurrent unit. With z, r = f(x W + h R + b) "
                                        "for the update and reset gates: h = (1 - "
                                        "z) * g(x W + (r * h) R + b) + z * h. Gates of the "
                                        "weights are in the order update, reset, "
                                        "hidden; activations are f, g.");
  schema.Arg<int64_t>("linear_before_reset",
                      "1: the hidden gate is g(x W + r * (h R + b) + b), as cuDNN has it", 0);
});

OPKIT_STANDARD_OPERATOR(RNN, kMaker, RecurrentOp<RnnLayer>).FillUsing([](OpSchema& schema) {
  detail::FillRecurrentSchema<RnnLayer>(schema, "Elman's recurrent layer: h = f(x W + h R + b).");
});

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_RECURRENT_HPP_

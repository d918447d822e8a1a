// STFT: the discrete Fourier transforms of frames of a signal, each faded by a window. Source:
// https://onnx.ai/onnx/operators/onnx__STFT.html, opset 17.
#ifndef OPKIT_OPS_SIGNAL_STFT_HPP_
#define OPKIT_OPS_SIGNAL_STFT_HPP_

#include "opkit/ops/signal/dft.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns how many frames of `length` steps begin `step` apart within `steps`. Throws
// kInvalidArgument for a step below 1, and for a signal that is shorter than a frame.
inline int64_t FrameCount(int64_t steps, int64_t length, int64_t step) {
  if (step < 1)
    Throw(ErrorCode::kInvalidArgument, "STFT: frame_step is ", step, ", expected 1 or more");
  if (steps < length)
    Throw(ErrorCode::kInvalidArgument, "STFT: the signal has ", steps,
          " steps, which is less than a frame of ", length);
  return (steps - length) / step + 1;
}

inline void InferStft(InferenceContext& c) {
  const bool onesided = c.Arg<int64_t>("onesided") != 0;
  const SymbolicShape& x = c.input_shape(0);
  if (x.has_rank() && x.rank() != 3)
    Throw(ErrorCode::kInvalidArgument, "STFT: signal has shape ", ToString(x),
          ", expected [batch, steps, 1] or [batch, steps, 2]");
  CheckComplexParts(x, onesided ? 1 : 0, "STFT");
  if (!c.HasInput(2) && !c.HasInput(3))
    Throw(ErrorCode::kInvalidArgument, "STFT: it needs a window or a frame_length");
  Dim length;
  if (const auto given = KnownIntegerList(c, 3, "frame_length"))
    length = CheckedFourierLength(OneInteger(*given, "STFT", "frame_length"), "STFT");
  if (c.HasInput(2)) {
    ExpectDType(c, 2, {c.input_dtype(0)});
    const SymbolicShape& window = c.input_shape(2);
    if (window.has_rank() && (window.rank() != 1 || !Dim::Compatible(window[0], length)))
      Throw(ErrorCode::kInvalidArgument, "STFT: window has shape ", ToString(window),
            ", expected [", c.HasInput(3) ? "frame_length" : "any", "], and frame_length is ",
            ToString(length));
    if (window.has_rank() && !length.is_known()) length = window[0];
    if (length.is_known()) CheckedFourierLength(length.value(), "STFT");
  }
  SymbolicShape y = SymbolicShape::OfRank(4);
  if (x.has_rank()) y[0] = x[0];
  const auto step = KnownIntegerList(c, 1, "frame_step");
  if (step && length.is_known() && x.has_rank() && x[1].is_known())
    y[1] = FrameCount(x[1].value(), length.value(), OneInteger(*step, "STFT", "frame_step"));
  y[2] = SpectrumSize(length, onesided);
  y[3] = 2;
  c.SetOutput(0, c.input_dtype(0), y);
}

OPKIT_NODE_GRADIENT(STFT) {
  const auto input = [&](int i) {
    return i < static_cast<int>(Def().inputs().size()) ? Def().inputs()[Index(i)] : std::string();
  };
  std::vector<std::string> outputs{GI(0)};
  if (!input(2).empty()) outputs.push_back(GI(2));
  AddNode(
      OperatorDef("STFTGradient", {GO(0), I(0), I(1), input(2), input(3)}, outputs, Def().args()));
}

}  // namespace detail

// The base of STFT and its gradient: signal, frame_step, window and frame_length are the inputs
// from `First` on.
template <int First>
class StftOpBase : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  int64_t Step() { return IntegerList(Input(First + 1), "frame_step")[0]; }
  int64_t FrameLength() {
    return HasInput(First + 3) ? IntegerList(Input(First + 3), "frame_length")[0]
                               : Input(First + 2).dim(0);
  }
  // Returns the window; ones if there is none.
  std::vector<double> Window(int64_t length) {
    if (HasInput(First + 2)) return detail::NumbersOf<double>(Input(First + 2));
    return std::vector<double>(detail::Index(length), 1.0);
  }
};

// Transform is as for DftOp.
template <template <class> class Transform, class Types>
class StftOp : public StftOpBase<0> {
 public:
  using StftOpBase::StftOpBase;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor& x = DenseInput(0);
    if (y->numel() == 0) return true;
    const int64_t step = Step(), n = FrameLength(), steps = x.dim(1), parts = x.dim(2);
    const int64_t frames = y->dim(1), bins = y->dim(2);
    const std::vector<double> window = Window(n);
    return Visit<Types>([&]<class T>() {
      using Kernel = Transform<T>;
      using Value = typename Kernel::Value;
      using Real = typename Kernel::Real;
      const Kernel prepared(n, false);
      const T* in = x.data<T>();
      T* out = y->mutable_data<T>();
      const std::vector<Real> factors(window.begin(), window.end());
      ParallelForRange(x.dim(0) * frames, detail::FourierGrain(n), [&](int64_t begin, int64_t end) {
        Kernel transform = prepared;
        std::vector<Value> line(detail::Index(n)), result(detail::Index(n));
        for (int64_t row = begin; row < end; ++row) {
          const T* from = in + (row / frames * steps + row % frames * step) * parts;
          for (int64_t i = 0; i < n; ++i, from += parts) {
            const Real factor = factors[detail::Index(i)];
            line[detail::Index(i)] = {factor * static_cast<Real>(from[0]),
                                      parts == 2 ? factor * static_cast<Real>(from[1]) : Real{0}};
          }
          transform.Run(line.data(), result.data());
          T* to = out + row * bins * 2;
          for (int64_t k = 0; k < bins; ++k, to += 2) {
            to[0] = ConvertElement<T>(result[detail::Index(k)].real());
            to[1] = ConvertElement<T>(result[detail::Index(k)].imag());
          }
        }
      });
    });
  }
};

// The adjoint of STFT: transforms each frame of the gradient with opposite exponents, and adds it
// times the window where the frame lies in the signal. The gradient of the window is the sum over
// all frames of the products with the signal.
class StftGradientOp final : public StftOpBase<1> {
 public:
  using StftOpBase::StftOpBase;
  bool RunOnDevice() override {
    const Tensor &gradient = DenseInput(0), &x = DenseInput(1);
    Tensor* dx = InferredOutput(0);
    Tensor* dwindow = HasOutput(1) ? InferredOutput(1) : nullptr;
    const int64_t step = Step(), n = FrameLength(), parts = x.dim(2), frames = gradient.dim(1);
    const int64_t signal = x.dim(1) * parts, bins = gradient.dim(2);
    const std::vector<double> window = Window(n);
    std::vector<double> sums(detail::Index(x.numel())), window_sums(detail::Index(n));
    const detail::FourierTransform transform(n, true);
    return Visit<FloatTypes>([&]<class T>() {
      std::vector<std::complex<double>> line(detail::Index(n)), result(detail::Index(n));
      for (int64_t row = 0; row < x.dim(0) * frames; ++row) {
        const T* from = gradient.data<T>() + row * bins * 2;
        for (int64_t k = 0; k < bins; ++k)
          line[detail::Index(k)] = {static_cast<double>(from[2 * k]),
                                    static_cast<double>(from[2 * k + 1])};
        transform.Run(line.data(), result.data());
        const int64_t first = row / frames * signal + row % frames * step * parts;
        const T* in = x.data<T>() + first;
        double* sum = sums.data() + first;
        for (int64_t i = 0; i < n; ++i)
          for (int64_t part = 0; part < parts; ++part, ++in, ++sum) {
            const std::complex<double> number = result[detail::Index(i)];
            const double value = part == 0 ? number.real() : number.imag();
            *sum += value * window[detail::Index(i)];
            window_sums[detail::Index(i)] += value * static_cast<double>(*in);
          }
      }
      Write<T>(sums, dx);
      if (dwindow) Write<T>(window_sums, dwindow);
    });
  }

 private:
  template <class T>
  static void Write(const std::vector<double>& sums, Tensor* to) {
    T* out = to->mutable_data<T>();
    for (const double sum : sums) *out++ = ConvertElement<T>(sum);
  }
};

using StftPlainOp = StftOp<detail::PlainFourier, FloatTypes>;

OPKIT_STANDARD_OPERATOR(STFT, kMaker, StftPlainOp)
    .NumInputs(2, 4)
    .InputsOnHost({1, 3})
    .Input(0, "signal", "[batch, steps, 1]: real numbers, or [batch, steps, 2]: complex ones",
           FloatTypes::DTypes())
    .Input(1, "frame_step", "one integer: the steps from the begin of a frame to that of the next",
           IndexTypes::DTypes())
    .Input(2, "window", "[frame_length]: the factors of a frame; by default 1",
           FloatTypes::DTypes())
    .Input(3, "frame_length",
           "one integer: the steps of a frame; by default the length of the window",
           IndexTypes::DTypes())
    .Output(0, "output",
            "[batch, frames, frequencies, 2]: the spectra. frames = (steps - frame_length) / "
            "frame_step + 1",
            FloatTypes::DTypes())
    .Arg<int64_t>("onesided",
                  "1: only the frequencies 0 to frame_length / 2, for a real signal; 0: "
                  "frame_length frequencies",
                  1)
    .Infer(detail::InferStft)
    .Doc("The discrete Fourier transforms of frames of a signal.");

OPKIT_STANDARD_OPERATOR(STFTGradient, kNotImplemented, StftGradientOp)
    .NumInputs(3, 5)
    .InputsOnHost({2, 4})
    .NumOutputs(1, 2)
    .Private()
    .Input(0, "gradient", "of the output of STFT", FloatTypes::DTypes())
    .Input(1, "signal", "of STFT", FloatTypes::DTypes())
    .Input(2, "frame_step", "of STFT", IndexTypes::DTypes())
    .Input(3, "window", "of STFT", FloatTypes::DTypes())
    .Input(4, "frame_length", "of STFT", IndexTypes::DTypes())
    .Output(0, "signal gradient", "of the shape of the signal", FloatTypes::DTypes())
    .Output(1, "window gradient", "of the shape of the window", FloatTypes::DTypes())
    .Arg<int64_t>("onesided", "of STFT", 1)
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, c.input_dtype(0), c.input_shape(1));
      if (c.num_outputs() > 1) c.SetOutput(1, c.input_dtype(0), c.input_shape(3));
    })
    .Doc("The gradient of STFT.");

}}  // namespace opkit

#endif  // OPKIT_OPS_SIGNAL_STFT_HPP_

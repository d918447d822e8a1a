// DFT: the discrete Fourier transform of all lines along an axis, and its inverse. The last axis
// of a tensor has the parts of a number: 1 real, or 2 complex. Source:
// https://onnx.ai/onnx/operators/onnx__DFT.html, opset 20.
#ifndef OPKIT_OPS_SIGNAL_DFT_HPP_
#define OPKIT_OPS_SIGNAL_DFT_HPP_

#include "opkit/ops/signal/fourier.hpp"
#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the only element of a list of integers. Throws kInvalidArgument for another number of
// elements.
inline int64_t OneInteger(const Dims& list, std::string_view op, const char* name) {
  if (list.size() != 1)
    Throw(ErrorCode::kInvalidArgument, op, ": '", name, "' has ", list.size(),
          " elements, expected one integer");
  return list[0];
}
// Returns the length of a transform. Throws kInvalidArgument for a length below 1.
inline int64_t CheckedFourierLength(int64_t n, std::string_view op) {
  if (n < 1)
    Throw(ErrorCode::kInvalidArgument, op, ": the length of the transform is ", n,
          ", expected 1 or more");
  return n;
}
// Returns the length of a spectrum: n, or half of it and one more if it is `onesided`.
inline Dim SpectrumSize(Dim n, bool onesided) {
  return n.is_known() && onesided ? Dim(n.value() / 2 + 1) : onesided ? Dim() : n;
}
// Throws kInvalidArgument unless the last extent of `shape`, as far as it is known, is 1 or 2, or
// exactly `parts` if that is not 0.
inline void CheckComplexParts(const SymbolicShape& shape, int64_t parts, std::string_view op) {
  if (!shape.has_rank() || shape.rank() == 0 || !shape[-1].is_known()) return;
  const int64_t found = shape[-1].value();
  if (parts != 0 ? found == parts : found == 1 || found == 2) return;
  Throw(ErrorCode::kInvalidArgument, op, ": the last extent of ", ToString(shape), " is ", found,
        ", expected ",
        parts == 1   ? "1: real numbers, because onesided is 1"
        : parts == 2 ? "2: complex numbers, because onesided and inverse are 1"
                     : "1 for real numbers, 2 for complex ones");
}
// Returns `axis` of DFT as a number in [0, rank - 1). Throws kOutOfRange for the last axis and for
// numbers outside the rank.
inline int FourierAxis(int64_t axis, int rank) {
  const int found = NormalizeAxis(axis, rank, "DFT");
  if (found == rank - 1)
    Throw(ErrorCode::kOutOfRange, "DFT: axis ", axis,
          " is the last one, which has the parts of complex numbers");
  return found;
}

inline void InferDft(InferenceContext& c) {
  const bool inverse = c.Arg<int64_t>("inverse") != 0, onesided = c.Arg<int64_t>("onesided") != 0;
  const SymbolicShape& x = c.input_shape(0);
  CheckComplexParts(x, !onesided ? 0 : inverse ? 2 : 1, "DFT");
  Dim length;
  if (const auto given = KnownIntegerList(c, 1, "dft_length"))
    length = CheckedFourierLength(OneInteger(*given, "DFT", "dft_length"), "DFT");
  if (!x.has_rank()) return c.SetOutput(0, c.input_dtype(0), x);
  if (x.rank() < 2)
    Throw(ErrorCode::kInvalidArgument, "DFT: input has shape ", ToString(x),
          ", expected rank 2 or more");
  SymbolicShape y = x;
  y[-1] = inverse && onesided ? 1 : 2;
  const auto given = KnownIntegerList(c, 2, "axis");
  if (c.HasInput(2) && !given) {
    y = SymbolicShape::OfRank(x.rank());
    y[-1] = inverse && onesided ? 1 : 2;
    return c.SetOutput(0, c.input_dtype(0), y);
  }
  const int axis = FourierAxis(given ? OneInteger(*given, "DFT", "axis") : -2, x.rank());
  if (!c.HasInput(1) && inverse && onesided && x[axis].is_known())
    length = CheckedFourierLength(2 * (x[axis].value() - 1), "DFT");
  if (!c.HasInput(1) && !(inverse && onesided)) {
    length = x[axis];
    if (length.is_known()) CheckedFourierLength(length.value(), "DFT");
  }
  y[axis] = SpectrumSize(length, onesided && !inverse);
  c.SetOutput(0, c.input_dtype(0), y);
}

// A dense tensor of real or complex numbers as lines along an axis.
struct FourierLines {
  AxisSplit split;
  int64_t parts;  // of a number

  FourierLines(const Tensor& x, int axis)
      : split(Shape(x.shape().data(), Index(x.rank() - 1)), axis), parts(x.dim(-1)) {}
  // Copies the first n numbers of a line to `to`, followed by zeros if the line is shorter.
  template <class T, class R>
  void Read(const T* x, int64_t row, int64_t n, std::complex<R>* to) const {
    const T* from = x + split.Begin(row) * parts;
    for (int64_t i = 0; i < n; ++i) {
      if (i >= split.extent) {
        to[i] = 0;
        continue;
      }
      const T* number = from + i * split.inner * parts;
      to[i] = {static_cast<R>(number[0]), parts == 2 ? static_cast<R>(number[1]) : R{0}};
    }
  }
  // Writes a line: `count` numbers, followed by zeros. A real tensor gets the real parts.
  template <class T, class R>
  void Write(const std::complex<R>* from, int64_t count, T* y, int64_t row) const {
    T* to = y + split.Begin(row) * parts;
    for (int64_t i = 0; i < split.extent; ++i) {
      T* number = to + i * split.inner * parts;
      number[0] = ConvertElement<T>(i < count ? from[i].real() : R{0});
      if (parts == 2) number[1] = ConvertElement<T>(i < count ? from[i].imag() : R{0});
    }
  }
};

// About 10 us of work for a thread, in lines of n numbers.
inline int64_t FourierGrain(int64_t n) { return 2048 / n + 1; }

OPKIT_NODE_GRADIENT(DFT) {
  const auto input = [&](int i) {
    return i < static_cast<int>(Def().inputs().size()) ? Def().inputs()[Index(i)] : std::string();
  };
  Give(0, "DFTGradient", {GO(0), I(0), input(1), input(2)}, Def().args());
}

}  // namespace detail

// The base of DFT and its gradient.
class DftOpBase : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  // Returns the axis in input `i`, as a number from 0 on.
  int AxisInInput(int i, int rank) {
    if (!HasInput(i)) return rank - 2;
    return detail::FourierAxis(detail::OneInteger(IntegerList(Input(i), "axis"), "DFT", "axis"),
                               rank);
  }

  const bool inverse_ = GetSingleArgument<int64_t>("inverse") != 0;
  const bool onesided_ = GetSingleArgument<int64_t>("onesided") != 0;
};

// Transform<T> computes lines of the element type T. Its numbers are Real and Value, and it has
// the constructor and Run of detail::FourierTransform. Each thread copies it.
template <template <class> class Transform, class Types>
class DftOp : public DftOpBase {
 public:
  using DftOpBase::DftOpBase;
  bool RunOnDevice() override {
    Infer();
    const Tensor& x = DenseInput(0);
    const int axis = AxisInInput(2, x.rank());
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const detail::FourierLines from(x, axis), to(*y, axis);
    int64_t n = to.split.extent;
    if (onesided_ && !inverse_)
      n = HasInput(1) ? IntegerList(Input(1), "dft_length")[0] : from.split.extent;
    return Visit<Types>([&]<class T>() {
      using Kernel = Transform<T>;
      using Value = typename Kernel::Value;
      const Kernel prepared(n, inverse_);
      const T* in = x.data<T>();
      T* out = y->mutable_data<T>();
      ParallelForRange(from.split.rows(), detail::FourierGrain(n), [&](int64_t begin, int64_t end) {
        Kernel transform = prepared;  // a kernel may have scratch memory
        std::vector<Value> line(detail::Index(n)), result(detail::Index(n));
        for (int64_t row = begin; row < end; ++row) {
          const bool half = onesided_ && inverse_;
          from.Read(in, row, half ? n / 2 + 1 : n, line.data());
          // A real signal has the conjugate spectrum at negative frequencies.
          for (int64_t k = n / 2 + 1; half && k < n; ++k)
            line[detail::Index(k)] = std::conj(line[detail::Index(n - k)]);
          transform.Run(line.data(), result.data());
          using Real = typename Kernel::Real;
          for (int64_t k = 0; inverse_ && k < n; ++k)
            result[detail::Index(k)] /= static_cast<Real>(n);
          to.Write(result.data(), n, out, row);
        }
      });
    });
  }
};

// The adjoint of DFT: the transform with opposite exponents, cut or padded to the shape of X.
class DftGradientOp final : public DftOpBase {
 public:
  using DftOpBase::DftOpBase;
  bool RunOnDevice() override {
    const Tensor& gradient = DenseInput(0);
    const int axis = AxisInInput(3, gradient.rank());
    Tensor* dx = InferredOutput(0);
    if (dx->numel() == 0) return true;
    const detail::FourierLines from(gradient, axis), to(*dx, axis);
    int64_t n = from.split.extent;
    if (onesided_ && !inverse_)
      n = HasInput(2) ? IntegerList(Input(2), "dft_length")[0] : to.split.extent;
    return Visit<FloatTypes>([&]<class T>() {
      const detail::FourierTransform transform(n, !inverse_);
      ParallelForRange(from.split.rows(), detail::FourierGrain(n), [&](int64_t begin, int64_t end) {
        std::vector<std::complex<double>> line(detail::Index(n)), result(detail::Index(n));
        for (int64_t row = begin; row < end; ++row) {
          from.Read(gradient.data<T>(), row, n, line.data());
          transform.Run(line.data(), result.data());
          for (int64_t k = 0; inverse_ && k < n; ++k) {
            // A frequency of a one-sided spectrum stands for two, but 0 and the highest one.
            const bool twice = onesided_ && k > 0 && 2 * k != n;
            result[detail::Index(k)] *= (twice ? 2.0 : 1.0) / static_cast<double>(n);
          }
          to.Write(result.data(), onesided_ && inverse_ ? n / 2 + 1 : n, dx->mutable_data<T>(),
                   row);
        }
      });
    });
  }
};

namespace detail {

template <class>
using PlainFourier = FourierTransform;

}  // namespace detail

using DftPlainOp = DftOp<detail::PlainFourier, FloatTypes>;

OPKIT_STANDARD_OPERATOR(DFT, kMaker, DftPlainOp)
    .NumInputs(1, 3)
    .InputsOnHost({1, 2})
    .Input(0, "input", "[…, 1]: real numbers, or […, 2]: complex ones", FloatTypes::DTypes())
    .Input(1, "dft_length",
           "one integer: the length of the transform. Longer lines are cut, shorter ones are "
           "followed by zeros. By default the length of the axis; for a one-sided inverse "
           "2 * (length - 1)",
           IndexTypes::DTypes())
    .Input(2, "axis", "one integer: the axis, but not the last one; by default -2",
           IndexTypes::DTypes())
    .Output(0, "output",
            "the spectrum, or the signal if inverse is 1: complex, but real for a one-sided "
            "inverse",
            FloatTypes::DTypes())
    .Arg<int64_t>("inverse", "1: the inverse transform, divided by its length", 0)
    .Arg<int64_t>("onesided",
                  "1: the spectrum is that of a real signal and has only the frequencies 0 to "
                  "length / 2",
                  0)
    .Infer(detail::InferDft)
    .Doc("The discrete Fourier transform along an axis. The plain kernel computes in double.");

OPKIT_STANDARD_OPERATOR(DFTGradient, kNotImplemented, DftGradientOp)
    .NumInputs(2, 4)
    .InputsOnHost({2, 3})
    .Private()
    .Input(0, "gradient", "of the output of DFT", FloatTypes::DTypes())
    .Input(1, "input", "of DFT: only its shape is read", FloatTypes::DTypes())
    .Input(2, "dft_length", "of DFT", IndexTypes::DTypes())
    .Input(3, "axis", "of DFT", IndexTypes::DTypes())
    .Output(0, "input gradient", "of the shape of the input", FloatTypes::DTypes())
    .Arg<int64_t>("inverse", "of DFT", 0)
    .Arg<int64_t>("onesided", "of DFT", 0)
    .Infer([](InferenceContext& c) { c.SetOutput(0, c.input_dtype(0), c.input_shape(1)); })
    .Doc("The gradient of DFT.");

}}  // namespace opkit

#endif  // OPKIT_OPS_SIGNAL_DFT_HPP_

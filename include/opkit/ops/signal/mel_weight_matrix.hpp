// MelWeightMatrix: the factors that sum the bins of a spectrum to bands of the mel scale. Sources:
// https://onnx.ai/onnx/operators/onnx__MelWeightMatrix.html, opset 17; O'Shaughnessy, "Speech
// Communication", 1987, for mel = 2595 log10(1 + f / 700).
#ifndef OPKIT_OPS_SIGNAL_MEL_WEIGHT_MATRIX_HPP_
#define OPKIT_OPS_SIGNAL_MEL_WEIGHT_MATRIX_HPP_

#include <cmath>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/integer_inputs.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the number in input i of MelWeightMatrix. Throws kInvalidArgument unless the input is one
// number of `least` or more.
inline int64_t MelInteger(const Tensor& tensor, const char* name, int64_t least) {
  const Dims list = IntegerList(tensor, name);
  if (list.size() != 1 || list[0] < least || list[0] > INT32_MAX)
    Throw(ErrorCode::kInvalidArgument, "MelWeightMatrix: ", name, " is ", tensor,
          ", expected one number from ", least, " to ", INT32_MAX);
  return list[0];
}

inline void InferMelWeightMatrix(InferenceContext& c) {
  const auto number = c.Arg<int64_t>("output_datatype");
  const DType dtype = OnnxDType(number);
  if (!NumericTypes::Has(dtype))
    Throw(ErrorCode::kUnsupported, "MelWeightMatrix: output_datatype=", number,
          " is not the number of one of ", NumericTypes::DTypes());
  SymbolicShape y = SymbolicShape::OfRank(2);
  if (const Tensor* length = c.input_constant(1))
    y[0] = MelInteger(*length, "dft_length", 1) / 2 + 1;
  if (const Tensor* bands = c.input_constant(0)) y[1] = MelInteger(*bands, "num_mel_bins", 0);
  c.SetOutput(0, dtype, y);
}

}  // namespace detail

// Each band is a triangle of bins: the factors rise to 1 in its middle and fall again.
class MelWeightMatrixOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const int64_t bins = y->dim(0), bands = y->dim(1);
    const std::vector<int64_t> edges = Edges(bands, bins);
    NumericTypes::Visit(y->dtype(), [&]<class T>() {
      T* out = y->mutable_data<T>();
      for (int64_t bin = 0; bin < bins; ++bin)
        for (int64_t band = 0; band < bands; ++band)
          *out++ = ConvertElement<T>(Factor(bin, edges.data() + band));
    });
    return true;
  }

 private:
  // Returns the bins at the edges of the bands: band b begins at entry b, has its middle at entry
  // b + 1 and ends before entry b + 2.
  std::vector<int64_t> Edges(int64_t bands, int64_t bins) {
    const auto length = static_cast<double>(detail::MelInteger(Input(1), "dft_length", 1));
    const auto rate = static_cast<double>(detail::MelInteger(Input(2), "sample_rate", 1));
    const double low = Hertz(3), high = Hertz(4);
    if (!(low >= 0 && low <= high && high <= rate / 2))
      Throw(ErrorCode::kInvalidArgument, "MelWeightMatrix: lower_edge_hertz is ", low,
            ", upper_edge_hertz is ", high, ", sample_rate is ", rate,
            ": expected 0 <= lower <= upper <= half of the rate");
    const double low_mel = 2595 * std::log10(1 + low / 700);
    const double step =
        (2595 * std::log10(1 + high / 700) - low_mel) / static_cast<double>(bands + 2);
    std::vector<int64_t> edges;
    for (int64_t i = 0; i < bands + 2; ++i) {
      const double mel = low_mel + static_cast<double>(i) * step;
      const double hertz = 700 * (std::pow(10, mel / 2595) - 1);
      const auto bin = static_cast<int64_t>(std::floor((length + 1) * hertz / rate));
      edges.push_back(bin < bins ? bin : bins);
    }
    return edges;
  }
  double Hertz(int i) {
    const Tensor& edge = DenseInput(i);
    if (edge.numel() != 1)
      Throw(ErrorCode::kInvalidArgument, "MelWeightMatrix: input ", i, " is ", edge,
            ", expected one number");
    return detail::NumbersOf<double>(edge)[0];
  }
  static double Factor(int64_t bin, const int64_t* edges) {
    const auto at = static_cast<double>(bin);
    const auto begin = static_cast<double>(edges[0]), middle = static_cast<double>(edges[1]);
    const auto end = static_cast<double>(edges[2]);
    if (at < begin) return 0;
    if (at == middle) return 1;
    if (at < middle) return (at - begin) / (middle - begin);
    return at < end ? (end - at) / (end - middle) : 0;
  }
};

OPKIT_STANDARD_OPERATOR(MelWeightMatrix, kNone, MelWeightMatrixOp)
    .NumInputs(5)
    .InputsOnHost({0, 1, 2, 3, 4})
    .Input(0, "num_mel_bins", "one number: the bands", IndexTypes::DTypes())
    .Input(1, "dft_length", "one number: the length of the Fourier transform", IndexTypes::DTypes())
    .Input(2, "sample_rate", "one number: samples in a second", IndexTypes::DTypes())
    .Input(3, "lower_edge_hertz", "one number: the begin of the first band", FloatTypes::DTypes())
    .Input(4, "upper_edge_hertz", "one number: above the last band", FloatTypes::DTypes())
    .Output(0, "output", "[dft_length / 2 + 1, num_mel_bins]", NumericTypes::DTypes())
    .Arg<int64_t>("output_datatype", "the output's type, as ONNX's number; 1 is float32", 1)
    .Infer(detail::InferMelWeightMatrix)
    .Doc("The matrix that converts a spectrum to bands of the mel scale.");

}}  // namespace opkit

#endif  // OPKIT_OPS_SIGNAL_MEL_WEIGHT_MATRIX_HPP_

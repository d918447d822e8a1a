// HannWindow, HammingWindow and BlackmanWindow: factors that fade a piece of a signal in and out.
// Sources: the ONNX operator pages (https://onnx.ai/onnx/operators), opset 17; Harris, "On the Use
// of Windows for Harmonic Analysis with the Discrete Fourier Transform", 1978.
#ifndef OPKIT_OPS_SIGNAL_WINDOW_FUNCTION_HPP_
#define OPKIT_OPS_SIGNAL_WINDOW_FUNCTION_HPP_

#include <cmath>
#include <numbers>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/integer_inputs.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferWindowFunction(InferenceContext& c) {
  const std::string op = c.def().type();
  const auto number = c.Arg<int64_t>("output_datatype");
  const DType dtype = OnnxDType(number);
  if (!NumericTypes::Has(dtype))
    Throw(ErrorCode::kUnsupported, op, ": output_datatype=", number,
          " is not the number of one of ", NumericTypes::DTypes());
  SymbolicShape shape = SymbolicShape::OfRank(1);
  if (c.input_shape(0).has_rank() && c.input_shape(0).rank() != 0)
    Throw(ErrorCode::kInvalidArgument, op, ": size has the shape ", ToString(c.input_shape(0)),
          ", expected a scalar");
  if (const auto size = KnownIntegerList(c, 0, "size")) {
    if ((*size)[0] < 0)
      Throw(ErrorCode::kInvalidArgument, op, ": size is ", (*size)[0], ", expected 0 or more");
    shape[0] = (*size)[0];
  }
  c.SetOutput(0, dtype, shape);
}

}  // namespace detail

// Computes a + b cos(t) + c cos(2 t) in double, for t from 0 to 2 pi.
class WindowFunctionOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const int64_t steps = periodic_ ? y->numel() : y->numel() - 1;
    NumericTypes::Visit(y->dtype(), [&]<class T>() {
      T* out = y->mutable_data<T>();
      for (int64_t i = 0; i < y->numel(); ++i)
        out[i] = ConvertElement<T>(
            steps > 0 ? Factor(static_cast<double>(i) / static_cast<double>(steps)) : 1.0);
    });
    return true;
  }

 private:
  double Factor(double part) const {
    const double turn = 2 * std::numbers::pi * part;
    if (type() == "HannWindow") return 0.5 - 0.5 * std::cos(turn);
    if (type() == "HammingWindow") return 25. / 46 - 21. / 46 * std::cos(turn);
    return 0.42 - 0.5 * std::cos(turn) + 0.08 * std::cos(2 * turn);
  }

  const bool periodic_ = GetSingleArgument<int64_t>("periodic") != 0;
};

#define OPKIT_WINDOW_OPERATOR(name, doc)                                                           \
  OPKIT_STANDARD_OPERATOR(name, kNone, WindowFunctionOp)                                           \
      .InputsOnHost({0})                                                                           \
      .Input(0, "size", "a scalar: the length", IndexTypes::DTypes())                              \
      .Output(0, "output", "[size]: a single element is 1 if the window is symmetric")             \
      .Arg<int64_t>("output_datatype", "the output's type, as ONNX's number; 1 is float32", 1)     \
      .Arg<int64_t>("periodic", "1: the last element is left out of a symmetric window of size+1", \
                    1)                                                                             \
      .Infer(detail::InferWindowFunction)                                                          \
      .Doc(doc)
OPKIT_WINDOW_OPERATOR(BlackmanWindow, "The window 0.42 - 0.5 cos(t) + 0.08 cos(2 t).");
OPKIT_WINDOW_OPERATOR(HammingWindow, "The window 25/46 - 21/46 cos(t).");
OPKIT_WINDOW_OPERATOR(HannWindow, "The window 1/2 - 1/2 cos(t).");
#undef OPKIT_WINDOW_OPERATOR

}}  // namespace opkit

#endif  // OPKIT_OPS_SIGNAL_WINDOW_FUNCTION_HPP_

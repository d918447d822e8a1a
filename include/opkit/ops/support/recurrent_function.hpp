// RecurrentFunction: the activation functions that the attribute `activations` of LSTM, GRU and RNN
// can name. Used by the kernels of all backends. Source:
// https://onnx.ai/onnx/operators/onnx__LSTM.html.
#ifndef OPKIT_OPS_SUPPORT_RECURRENT_FUNCTION_HPP_
#define OPKIT_OPS_SUPPORT_RECURRENT_FUNCTION_HPP_

#include <cmath>

#include "opkit/base/error.hpp"
#include "opkit/base/suggest.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// An activation function with its parameters; callable for float and double.
struct RecurrentFunction {
  enum class Kind : uint8_t {
    kSigmoid,
    kTanh,
    kRelu,
    kAffine,
    kLeakyRelu,
    kThresholdedRelu,
    kScaledTanh,
    kHardSigmoid,
    kElu,
    kSoftsign,
    kSoftplus,
  };
  Kind kind = Kind::kSigmoid;
  float alpha = 0, beta = 0;

  template <class T>
  OPKIT_HOST_DEVICE T operator()(T x) const {
    const T a = static_cast<T>(alpha), b = static_cast<T>(beta);
    switch (kind) {
      case Kind::kSigmoid:
        return 1 / (1 + std::exp(-x));
      case Kind::kTanh:
        return std::tanh(x);
      case Kind::kRelu:
        return x > 0 ? x : T(0);
      case Kind::kAffine:
        return a * x + b;
      case Kind::kLeakyRelu:
        return x >= 0 ? x : a * x;
      case Kind::kThresholdedRelu:
        return x >= a ? x : T(0);
      case Kind::kScaledTanh:
        return a * std::tanh(b * x);
      case Kind::kHardSigmoid: {
        const T line = a * x + b;
        return line < 0 ? T(0) : line > 1 ? T(1) : line;
      }
      case Kind::kElu:
        return x >= 0 ? x : a * std::expm1(x);
      case Kind::kSoftsign:
        return x / (1 + std::abs(x));
      case Kind::kSoftplus:  // does not overflow for large x
        return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    }
    return x;
  }
  double Derivative(double x) const {
    const auto a = static_cast<double>(alpha), b = static_cast<double>(beta);
    switch (kind) {
      case Kind::kSigmoid:
      case Kind::kTanh: {
        const double y = (*this)(x);
        return kind == Kind::kTanh ? 1 - y * y : y * (1 - y);
      }
      case Kind::kRelu:
        return x > 0 ? 1 : 0;
      case Kind::kAffine:
        return a;
      case Kind::kLeakyRelu:
        return x >= 0 ? 1 : a;
      case Kind::kThresholdedRelu:
        return x >= a ? 1 : 0;
      case Kind::kScaledTanh:
        return a * b * (1 - std::tanh(b * x) * std::tanh(b * x));
      case Kind::kHardSigmoid:
        return a * x + b > 0 && a * x + b < 1 ? a : 0;
      case Kind::kElu:
        return x >= 0 ? 1 : a * std::exp(x);
      case Kind::kSoftsign:
        return 1 / ((1 + std::fabs(x)) * (1 + std::fabs(x)));
      case Kind::kSoftplus:
        return 1 / (1 + std::exp(-x));
    }
    return 1;
  }
};

// Returns the functions with these names; case does not matter. A function with alpha or beta takes
// the next number of that list, or its default if the list has ended. Throws kNotFound for an
// unknown name, kInvalidArgument if numbers are left over. `op` is for messages.
inline std::vector<RecurrentFunction> RecurrentFunctions(const std::vector<std::string>& names,
                                                         const std::vector<float>& alphas,
                                                         const std::vector<float>& betas,
                                                         std::string_view op) {
  using Kind = RecurrentFunction::Kind;
  struct Known {
    const char* name;
    Kind kind;
    bool uses_alpha, uses_beta;
    float alpha, beta;
  };
  constexpr Known kKnown[] = {
      {"Sigmoid", Kind::kSigmoid, false, false, 0, 0},
      {"Tanh", Kind::kTanh, false, false, 0, 0},
      {"Relu", Kind::kRelu, false, false, 0, 0},
      {"Affine", Kind::kAffine, true, true, 1, 0},
      {"LeakyRelu", Kind::kLeakyRelu, true, false, 0.01f, 0},
      {"ThresholdedRelu", Kind::kThresholdedRelu, true, false, 1, 0},
      {"ScaledTanh", Kind::kScaledTanh, true, true, 1, 1},
      {"HardSigmoid", Kind::kHardSigmoid, true, true, 0.2f, 0.5f},
      {"Elu", Kind::kElu, true, false, 1, 0},
      {"Softsign", Kind::kSoftsign, false, false, 0, 0},
      {"Softplus", Kind::kSoftplus, false, false, 0, 0},
  };
  auto lower = [](std::string_view text) {
    std::string out(text);
    for (char& c : out)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return out;
  };
  std::vector<RecurrentFunction> functions;
  size_t alpha = 0, beta = 0;
  for (const std::string& name : names) {
    const Known* found = nullptr;
    std::vector<std::string> all;
    for (const Known& known : kKnown) {
      all.emplace_back(known.name);
      if (lower(known.name) == lower(name)) found = &known;
    }
    if (!found)
      Throw(ErrorCode::kNotFound, op, ": there is no activation '", name, "'",
            SuggestName(name, all), "; expected one of ", all);
    RecurrentFunction function{found->kind, found->alpha, found->beta};
    if (found->uses_alpha && alpha < alphas.size()) function.alpha = alphas[alpha++];
    if (found->uses_beta && beta < betas.size()) function.beta = betas[beta++];
    functions.push_back(function);
  }
  if (alpha < alphas.size() || beta < betas.size())
    Throw(ErrorCode::kInvalidArgument, op, ": ", alphas.size(), " values of activation_alpha and ",
          betas.size(), " of activation_beta were given, but the activations ", names, " use ",
          alpha, " and ", beta);
  return functions;
}

}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_RECURRENT_FUNCTION_HPP_

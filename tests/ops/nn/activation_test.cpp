// Clip, Elu, HardSigmoid, HardSwish, LeakyRelu, PRelu, Relu, Sigmoid, Softplus, SwiGLU, Tanh.
#include "opkit/ops/nn/activation.hpp"

#include <doctest/doctest.h>

#include "opkit/interop/doctest.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/unary.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace activation_test {
using namespace opkit;

namespace {

Floats Run(const std::string& op, const Floats& x, Arguments args = {}) {
  const auto n = static_cast<int64_t>(x.size());
  return Invoke(op, {Tensor::From<float>({n}, x)}, std::move(args))[0].ToVector<float>();
}
bool Near(const Floats& found, const Floats& expected) {
  if (found.size() != expected.size()) return false;
  for (size_t i = 0; i < found.size(); ++i)
    if (!(std::fabs(found[i] - expected[i]) <= 1e-6f * (1 + std::fabs(expected[i])))) return false;
  return true;
}

TEST_CASE("each activation computes its function with its attributes") {
  CHECK(Near(Run("Elu", {-1, 0, 2}), {-0.632120559f, 0, 2}));
  CHECK(Near(Run("Elu", {-1, 3}, {{"alpha", 2.f}}), {-1.264241118f, 3}));
  CHECK(Near(Run("HardSigmoid", {-5, -1, 0, 1, 5}), {0, 0.3f, 0.5f, 0.7f, 1}));
  CHECK(Near(Run("HardSigmoid", {-1, 0, 1}, {{"alpha", 0.5f}, {"beta", 0.6f}}), {0.1f, 0.6f, 1}));
  CHECK(Near(Run("HardSwish", {-4, -1.5f, 0, 1.5f, 4}), {0, -0.375f, 0, 1.125f, 4}));
  CHECK(Near(Run("LeakyRelu", {-2, 0, 3}), {-0.02f, 0, 3}));
  CHECK(Near(Run("LeakyRelu", {-2, 3}, {{"alpha", 0.5f}}), {-1, 3}));
  CHECK(Run("Relu", {-1.5f, 0, 2}) == Floats{0, 0, 2});
  CHECK(Near(Run("Sigmoid", {-200, -1, 0, 1, 200}), {0, 0.268941421f, 0.5f, 0.731058579f, 1}));
  CHECK(Near(Run("Softplus", {-200, -1, 0, 1, 200}),
             {0, 0.313261688f, 0.693147181f, 1.313261688f, 200}));
  CHECK(Near(Run("Tanh", {-20, -1, 0, 1}), {-1, -0.761594156f, 0, 0.761594156f}));
}

TEST_CASE("a NaN stays a NaN") {
  for (const char* op : {"Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid",
                         "Softplus", "Tanh"}) {
    CAPTURE(op);
    CHECK(std::isnan(Run(op, {NAN})[0]));
  }
}

TEST_CASE("Clip: either limit may be left out") {
  const Tensor x = Tensor::From<float>({4}, {-2, -1, 0, 3}), none;
  const Tensor low = Tensor::Scalar(-1.f), high = Tensor::Scalar(1.f);
  CHECK(Invoke("Clip", {x, low, high})[0].ToVector<float>() == Floats{-1, -1, 0, 1});
  CHECK(Invoke("Clip", {x, low})[0].ToVector<float>() == Floats{-1, -1, 0, 3});
  CHECK(Invoke("Clip", {x, none, high})[0].ToVector<float>() == Floats{-2, -1, 0, 1});
  CHECK(Invoke("Clip", {x})[0].ToVector<float>() == Floats{-2, -1, 0, 3});
  const Tensor infinite = Tensor::From<float>({2}, {-INFINITY, INFINITY});
  CHECK(Invoke("Clip", {infinite})[0].ToVector<float>() == Floats{-INFINITY, INFINITY});
}

TEST_CASE("Clip: the upper limit wins over a larger lower one") {
  const Tensor x = Tensor::From<float>({2}, {-2, 9});
  CHECK(Invoke("Clip", {x, Tensor::Scalar(2.f), Tensor::Scalar(1.f)})[0].ToVector<float>() ==
        Floats{1, 1});
}

TEST_CASE("Clip of integers, limits of one element, and an empty tensor") {
  const Tensor x = Tensor::From<int8_t>({3}, {-128, 0, 127}), none;
  CHECK(Invoke("Clip", {x})[0].ToVector<int8_t>() == std::vector<int8_t>{-128, 0, 127});
  CHECK(Invoke("Clip", {x, none, Tensor::From<int8_t>({1}, {5})})[0].ToVector<int8_t>() ==
        std::vector<int8_t>{-128, 0, 5});
  const Tensor one = Tensor::From<int8_t>({1, 1}, {5});  // of a larger rank than what it limits
  CHECK(Invoke("Clip", {x, one})[0].ToVector<int8_t>() == std::vector<int8_t>{5, 5, 127});
  CHECK(Invoke("Clip", {Tensor::Scalar<int8_t>(9), none, one})[0].ToVector<int8_t>() ==
        std::vector<int8_t>{5});
  CHECK(Invoke("Clip", {Tensor(Shape{0, 3}, DType::kFloat32)})[0].shape() == Shape{0, 3});
}

TEST_CASE("Clip refuses limits of another shape or type") {
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  CHECK(ErrorOf([&] {
          Invoke("Clip", {x, x});
        }).message() == "Clip: input 1 'min' has shape [2], expected a scalar");
  const Error error = ErrorOf([&] { Invoke("Clip", {x, Tensor::Scalar(1.)}); });
  CHECK(error.code() == ErrorCode::kTypeMismatch);
  CHECK(Contains(error.message(), "float64[], expected dtype float32"));
}

TEST_CASE("PRelu: the slope is broadcast to the input, and not the other way round") {
  const Tensor x = Tensor::From<float>({2, 2}, {-1, 2, -3, -4});
  const Tensor slope = Tensor::From<float>({2, 1}, {0.5f, 2});
  CHECK(Invoke("PRelu", {x, slope})[0].ToVector<float>() == Floats{-0.5f, 2, -6, -8});
  const Tensor integers = Tensor::From<int32_t>({3}, {-2, 0, 3});
  CHECK(Invoke("PRelu", {integers, Tensor::Scalar(int32_t{10})})[0].ToVector<int32_t>() ==
        std::vector<int32_t>{-20, 0, 3});
  const Error error = ErrorOf([&] { Invoke("PRelu", {slope, x}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() ==
        "PRelu: the slope of shape [2, 2] cannot be broadcast to the input's shape [2, 1]");
}

TEST_CASE("PRelu: the shape is the input's, also where extents are symbols") {
  const OpSchema& schema = OpRegistry::Global().GetSchema("PRelu");
  const OperatorDef def("PRelu", {"x", "slope"}, {"y"});
  const auto out = schema.InferOutputs(def, {TensorInfo(DType::kFloat32, {Sym("N"), 3, Sym("W")}),
                                             TensorInfo(DType::kFloat32, {3, 1})});
  CHECK(out[0].shape == SymbolicShape{Sym("N"), 3, Sym("W")});
}

TEST_CASE("SwiGLU: Swish of the gate times the value, of equal shapes") {
  const Tensor a = Tensor::From<float>({2, 2}, {-1, 0, 2, -1000});
  const Tensor b = Tensor::From<float>({2, 2}, {2, 3, -1, 5});
  CHECK(Near(Invoke("SwiGLU", {a, b})[0].ToVector<float>(), {-0.53788284f, 0, -1.76159416f, 0}));
  CHECK(Near(Invoke("SwiGLU", {a, b}, {{"alpha", 0.5f}})[0].ToVector<float>(),
             {-0.75508134f, 0, -1.46211716f, 0}));
  CHECK(ErrorOf([&] {
          Invoke("SwiGLU", {a, Tensor::From<float>({2, 1}, {1, 2})});
        }).code() == ErrorCode::kInvalidArgument);
  const OpSchema& schema = OpRegistry::Global().GetSchema("SwiGLU");
  const OperatorDef def("SwiGLU", {"a", "b"}, {"y"});
  const auto y = schema.InferOutputs(
      def, {TensorInfo(DType::kFloat32, {Dim(), 3}), TensorInfo(DType::kFloat32, {Sym("N"), 3})});
  CHECK(y[0].shape == SymbolicShape{Sym("N"), 3});
  const auto result = CheckGradient(
      OperatorDef("SwiGLU", {"a", "b"}, {"y"}, {{"alpha", 0.5f}}),
      {Tensor::From<double>({3}, {-1, 0.25, 2}), Tensor::From<double>({3}, {2, 3, -1})},
      {.inputs = {0, 1}});
  CHECK_MESSAGE(result.ok(), ToString(result));
}

TEST_CASE("attributes of another type, or that there are not, are refused") {
  const Tensor x = Tensor::From<float>({1}, {1});
  CHECK(Contains(ErrorOf([&] {
                   Invoke("Elu", {x}, {{"alpha", "1"}});
                 }).message(),
                 "argument 'alpha' of Elu is string (\"1\"), expected float"));
  CHECK(Contains(ErrorOf([&] {
                   Invoke("Elu", {x}, {{"alhpa", 1.f}});
                 }).message(),
                 "did you mean 'alpha'"));
}

TEST_CASE("16 bits are computed in float and rounded once") {
  const Tensor x = Tensor::From<float16>({2}, {float16(0.5f), float16(-1.f)});
  const auto y = Invoke("Sigmoid", {x})[0].ToVector<float16>();
  CHECK(y[0].bits == float16(0.622459331f).bits);
  CHECK(y[1].bits == float16(0.268941421f).bits);
}

TEST_CASE("the operators and their gradients keep the promises of their schemas") {
  for (const char* op : {"Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "PRelu", "Relu",
                         "Sigmoid", "Softplus", "SwiGLU", "Tanh"})
    OPKIT_CHECK_OPERATOR(op);
}

std::string GradientFault(const OperatorDef& def, const std::vector<Tensor>& inputs,
                          const std::vector<int>& of = {0}) {
  const auto result = CheckGradient(def, inputs, {.inputs = of});
  return result.ok() ? "" : ToString(result);
}

TEST_CASE("gradients on both sides of the kinks, with and without attributes") {
  // No element is near a kink: -4, -2.5, 0 and 1 of HardSigmoid, -3 and 3 of HardSwish.
  const Tensor x = Tensor::From<double>({8}, {-5, -3.5, -2, -0.5, 0.5, 1.5, 2.75, 4});
  CHECK(GradientFault(OperatorDef("Elu", {"x"}, {"y"}), {x}) == "");
  CHECK(GradientFault(OperatorDef("Elu", {"x"}, {"y"}, {{"alpha", 2.f}}), {x}) == "");
  CHECK(GradientFault(OperatorDef("HardSigmoid", {"x"}, {"y"}), {x}) == "");
  const Arguments steep = {{"alpha", 0.25f}, {"beta", 1.f}};
  CHECK(GradientFault(OperatorDef("HardSigmoid", {"x"}, {"y"}, steep), {x}) == "");
  CHECK(GradientFault(OperatorDef("HardSwish", {"x"}, {"y"}), {x}) == "");
  CHECK(GradientFault(OperatorDef("LeakyRelu", {"x"}, {"y"}), {x}) == "");
  CHECK(GradientFault(OperatorDef("LeakyRelu", {"x"}, {"y"}, {{"alpha", 0.5f}}), {x}) == "");
  const Tensor grid = Tensor::From<double>({2, 4}, x.ToVector<double>());
  const Tensor slope = Tensor::From<double>({2, 1}, {0.5, -2});
  CHECK(GradientFault(OperatorDef("PRelu", {"x", "slope"}, {"y"}), {grid, slope}, {0, 1}) == "");
}

TEST_CASE("the gradient of Clip goes to the element or to the bound that is the output") {
  const Tensor x = Tensor::From<double>({5}, {-5, -2, -0.5, 1.5, 4});
  const auto number = [](double value) { return Tensor::Scalar(value); };
  const OperatorDef both("Clip", {"x", "min", "max"}, {"y"});
  CHECK(GradientFault(both, {x, number(-1), number(2)}, {0, 1, 2}) == "");
  CHECK(GradientFault(both, {x, number(2), number(-1)}, {0, 1, 2}) == "");  // min above max
  CHECK(GradientFault(OperatorDef("Clip", {"x", "min"}, {"y"}), {x, number(-1)}, {0, 1}) == "");
  CHECK(GradientFault(OperatorDef("Clip", {"x", "", "max"}, {"y"}), {x, Tensor(), number(-1)},
                      {0, 2}) == "");
  CHECK(GradientFault(OperatorDef("Clip", {"x"}, {"y"}), {x}) == "");
}

}  // namespace
}  // namespace activation_test

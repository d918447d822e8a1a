// Acos, Acosh, Asin, Asinh, Atan, Atanh, Celu, Cosh, Gelu, Mish, Selu, Shrink, Sinh, Softsign,
// Swish, Tan, ThresholdedRelu.
#include "opkit/ops/math/scalar_function.hpp"

#include <doctest/doctest.h>

#include "opkit/interop/doctest.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/ops/cast.hpp"
#include "opkit/ops/generators.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/unary.hpp"
#include "support/check_node.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace scalar_function_test {
using namespace opkit;

namespace {

// True if the operator gives `expected` to the last bits of a float.
bool Gives(const std::string& op, const Floats& x, const Floats& expected, Arguments args = {}) {
  const auto n = static_cast<int64_t>(x.size());
  const Floats y = Invoke(op, {Tensor::From<float>({n}, x)}, std::move(args))[0].ToVector<float>();
  for (size_t i = 0; i < x.size(); ++i)
    if (!(std::fabs(y[i] - expected[i]) <= 2e-7f * std::fabs(expected[i]))) return false;
  return y.size() == expected.size();
}
float One(const std::string& op, float x) {
  return Invoke(op, {Tensor::Scalar(x)})[0].ToVector<float>()[0];
}

TEST_CASE("trigonometric and hyperbolic functions") {
  CHECK(Gives("Acos", {-1, 0, 0.5f}, {3.14159265f, 1.57079633f, 1.04719755f}));
  CHECK(Gives("Acosh", {1, 2}, {0, 1.31695790f}));
  CHECK(Gives("Asin", {-1, 0, 0.5f}, {-1.57079633f, 0, 0.52359878f}));
  CHECK(Gives("Asinh", {-1, 0, 2}, {-0.88137359f, 0, 1.44363548f}));
  CHECK(Gives("Atan", {-1, 0, 2}, {-0.78539816f, 0, 1.10714872f}));
  CHECK(Gives("Atanh", {-0.5f, 0, 0.25f}, {-0.54930614f, 0, 0.25541281f}));
  CHECK(Gives("Cosh", {-1, 0, 2}, {1.54308063f, 1, 3.76219569f}));
  CHECK(Gives("Sinh", {-1, 0, 2}, {-1.17520119f, 0, 3.62686041f}));
  CHECK(Gives("Tan", {-1, 0, 0.5f}, {-1.55740772f, 0, 0.54630249f}));
  CHECK(std::isnan(One("Acos", 2)));
  CHECK(std::isnan(One("Acosh", 0)));
  CHECK(One("Atanh", 1) == INFINITY);
}

TEST_CASE("activations, with their attributes and without") {
  CHECK(Gives("Celu", {-1, 0, 2}, {-0.63212056f, 0, 2}));
  CHECK(Gives("Celu", {-1, 3}, {-0.78693868f, 3}, {{"alpha", 2.f}}));
  CHECK(Gives("Gelu", {-1, 0, 2}, {-0.15865525f, 0, 1.95449974f}));
  CHECK(Gives("Gelu", {-1, 2}, {-0.15880801f, 1.95459769f}, {{"approximate", "tanh"}}));
  CHECK(Gives("Mish", {-1, 0, 2}, {-0.30340146f, 0, 1.94395896f}));
  CHECK(Gives("Selu", {-1, 0, 2}, {-1.11133074f, 0, 2.10140204f}));
  CHECK(Gives("Selu", {-1, 2}, {-3.79272336f, 6}, {{"alpha", 2.f}, {"gamma", 3.f}}));
  CHECK(Gives("Shrink", {-2, -0.5f, 0.5f, 2}, {-2, 0, 0, 2}));
  CHECK(Gives("Shrink", {-2, -1.5f, 1, 2}, {-1.5f, 0, 0, 1.5f}, {{"bias", 0.5f}, {"lambd", 1.5f}}));
  CHECK(Gives("Softsign", {-1, 0, 3}, {-0.5f, 0, 0.75f}));
  CHECK(Gives("Swish", {-1, 0, 2}, {-0.26894142f, 0, 1.76159416f}));
  CHECK(Gives("Swish", {2}, {1.46211716f}, {{"alpha", 0.5f}}));
  CHECK(Gives("ThresholdedRelu", {-1, 1, 1.5f}, {0, 0, 1.5f}));
  CHECK(Gives("ThresholdedRelu", {-1, 1.5f, 3}, {0, 0, 3}, {{"alpha", 2.f}}));
}

TEST_CASE("extremes stay in range, and 16 bits are rounded once") {
  CHECK(One("Mish", 1000) == 1000);
  CHECK(One("Mish", -1000) == 0);
  CHECK(One("Gelu", -1000) == 0);
  CHECK(One("Swish", -1000) == 0);
  const Tensor y = Invoke("Atan", {Tensor::Scalar(float16(1.f))})[0];
  CHECK(y.ToVector<float16>()[0].bits == float16(0.78539816f).bits);
}

TEST_CASE("Shrink takes integers, and the others refuse them") {
  const Tensor x = Tensor::From<int32_t>({4}, {-3, -1, 1, 3});
  CHECK(Invoke("Shrink", {x}, {{"bias", 2.f}, {"lambd", 1.f}})[0].ToVector<int32_t>() ==
        std::vector<int32_t>{-1, 0, 0, 1});
  CHECK(ErrorOf([&] { Invoke("Tan", {x}); }).code() == ErrorCode::kTypeMismatch);
  CHECK(Contains(ErrorOf([] {
                   Invoke("Gelu", {Tensor::Scalar(1.f)}, {{"approximate", "erf"}});
                 }).message(),
                 "none of its values (known: 'none', 'tanh')"));
}

TEST_CASE("the operators and their gradients keep the promises of their schemas") {
  for (const detail::ScalarFunctionRow& row : detail::kScalarFunctions) {
    CAPTURE(row.op);
    OPKIT_CHECK_OPERATOR(std::string(row.op));
  }
  for (const detail::ScalarFunctionRow& row : detail::kScalarFunctions)
    CHECK(HasGradient(std::string(row.op)));
}

TEST_CASE("gradients beside the kinks, with attributes, and where exponentials overflow") {
  // No element is near a kink: 0, 1 of ThresholdedRelu, 1.5 of Shrink.
  const Tensor x = Tensor::From<float>({6}, {-3, -1.25f, -0.5f, 0.25f, 0.75f, 2});
  const std::pair<const char*, Arguments> nodes[] = {
      {"Celu", {}},
      {"Celu", {{"alpha", 2.f}}},
      {"Gelu", {}},
      {"Gelu", {{"approximate", "tanh"}}},
      {"Mish", {}},
      {"Selu", {}},
      {"Selu", {{"alpha", 2.f}, {"gamma", 0.5f}}},
      {"Shrink", {{"bias", 0.5f}, {"lambd", 1.5f}}},
      {"Swish", {}},
      {"Swish", {{"alpha", 0.5f}}},
      {"ThresholdedRelu", {}},
  };
  for (const auto& [op, args] : nodes) {
    CAPTURE(op);
    CheckNode(OperatorDef(op, {"x"}, {"y"}, args), {x});
  }
  for (const char* op : {"Gelu", "Mish", "Swish"}) {
    CAPTURE(op);
    const std::vector<double> slopes =
        Invoke("ScalarFunctionGradient",
               {Tensor::From<double>({2}, {-1e160, 1e160}), Tensor::From<double>({2}, {1, 1})},
               {{"function", op}})[0]
            .ToVector<double>();
    CHECK(slopes == std::vector<double>{0, 1});
  }
}

}  // namespace
}  // namespace scalar_function_test

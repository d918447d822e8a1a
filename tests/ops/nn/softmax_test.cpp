// Softmax and LogSoftmax: values, axes, large numbers, errors.
#include "opkit/ops/nn/softmax.hpp"

#include <doctest/doctest.h>

#include "opkit/op/invoke.hpp"
#include "opkit/ops/generators.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/reduce.hpp"
#include "opkit/ops/math/unary.hpp"
#include "ops/infer.hpp"
#include "support/check_node.hpp"
#include "support/tensors.hpp"

namespace softmax_test {
using namespace opkit_tests;

namespace {

TEST_CASE("Softmax along the last axis adds up to 1") {
  // e^0 : e^ln 3 = 1 : 3
  const Tensor x = Tensor::From<float>({2, 2}, {0, std::log(3.f), 5, 5});
  const std::vector<float> y = Invoke("Softmax", {x})[0].ToVector<float>();
  CHECK(y[0] == doctest::Approx(0.25));
  CHECK(y[1] == doctest::Approx(0.75));
  CHECK(y[2] == 0.5f);
  CHECK(y[3] == 0.5f);
}

TEST_CASE("The axis may be any, counted from either end") {
  const Tensor x = Tensor::From<double>({2, 1, 2}, {0, 1, std::log(3.), 1});
  for (const int64_t axis : {0, -3}) {
    const std::vector<double> y = Invoke("Softmax", {x}, {{"axis", axis}})[0].ToVector<double>();
    CHECK(y[0] == doctest::Approx(0.25));
    CHECK(y[1] == doctest::Approx(0.5));
    CHECK(y[2] == doctest::Approx(0.75));
  }
  CHECK(Invoke("Softmax", {x}, {{"axis", 1}})[0].ToVector<double>() == std::vector<double>(4, 1.));
}

TEST_CASE("Large and infinite numbers do not overflow") {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::From<float>({2, 3}, {10000, 9999, -10000, 1, -infinity, 1});
  const std::vector<float> y = Invoke("Softmax", {x})[0].ToVector<float>();
  CHECK(y[0] == doctest::Approx(1 / (1 + std::exp(-1.))));
  CHECK(y[2] == 0);
  CHECK(y[3] == 0.5f);
  CHECK(y[4] == 0);
  const std::vector<float> logs = Invoke("LogSoftmax", {x})[0].ToVector<float>();
  CHECK(logs[2] == doctest::Approx(-20000.3133));
  CHECK(logs[4] == -infinity);
  const Tensor nan = Tensor::From<float>({2}, {1, std::numeric_limits<float>::quiet_NaN()});
  CHECK(std::isnan(Invoke("Softmax", {nan})[0].ToVector<float>()[0]));
}

TEST_CASE("A type that is not computed is refused, and no result of an earlier run stays") {
  Workspace ws;
  *ws.CreateTensor("x") = Tensor::From<float>({2}, {1, 2});
  const auto op = CreateOperator(OperatorDef("Softmax", {"x"}, {"y"}), &ws);
  CHECK(op->Run());
  *ws.GetTensor("x") = Tensor::From<int32_t>({3}, {1, 2, 3});
  CHECK(Contains(ErrorOf([&] { op->Run(); }).what(), "input 0 'input' is int32[3]"));
}

TEST_CASE("Empty tensors stay empty, and the half types are computed wider") {
  CHECK(Invoke("Softmax", {Tensor({3, 0}, DType::kFloat32)})[0].shape() == Shape{3, 0});
  CHECK(Invoke("Softmax", {Tensor({0, 3}, DType::kFloat32)})[0].shape() == Shape{0, 3});
  const int64_t many = int64_t{1} << 31;  // rows, of nothing
  const Tensor rows({many, 0, many}, DType::kFloat32);
  CHECK(Invoke("Softmax", {rows}, {{"axis", 1}})[0].shape() == rows.shape());
  const Tensor half = Tensor::From<float16>({2}, {0.f, 0.f});
  CHECK(static_cast<float>(Invoke("Softmax", {half})[0].data<float16>()[0]) == 0.5f);
}

TEST_CASE("Softmax keeps the shape, and refuses an axis that is not there") {
  CHECK(Inferred("Softmax", {F({Sym("N"), 5})}) == "float32[N, 5]");
  CHECK(Inferred("Softmax", {F(SymbolicShape())}, {{"axis", 7}}) == "float32[rank unknown]");
  CHECK(Refused("Softmax", {F({2, 3})}, {{"axis", 2}}) ==
        "Softmax: axis 2 is outside a tensor of rank 2, expected -2 to 1");
  CHECK(Contains(Refused("LogSoftmax", {F(Shape{})}), "LogSoftmax: axis -1"));
  CHECK(Contains(Refused("Softmax", {{DType::kInt32, Shape{2}}}), "input 0 'input' is int32[2]"));
}

TEST_CASE("Softmax and LogSoftmax keep the promises of their schemas") {
  for (const char* op : {"Softmax", "LogSoftmax"})
    for (const int64_t axis : {0, 1, 2})
      CheckNode(OperatorDef(op, {"x"}, {"y"}, {{"axis", axis}}), {Random({3, 5, 4}, 1)});
}

TEST_CASE("Gradients of Softmax and LogSoftmax along every axis") {
  const std::vector<Tensor> x = {Random({3, 5, 4}, 5, DType::kFloat64)};
  for (const char* op : {"Softmax", "LogSoftmax"})
    for (const int axis : {-3, -1, 0, 1, 2}) {
      CAPTURE(op);
      CAPTURE(axis);
      const auto result =
          CheckGradient(OperatorDef(op, {"x"}, {"y"}, {{"axis", axis}}), x, {.inputs = {0}});
      CHECK_MESSAGE(result.ok(), ToString(result));
      CHECK(result.elements_checked == 60);
    }
  const auto result = CheckGradient(OperatorDef("Softmax", {"x"}, {"y"}), x, {.inputs = {0}});
  CHECK_MESSAGE(result.ok(), ToString(result));
}

}  // namespace
}  // namespace softmax_test

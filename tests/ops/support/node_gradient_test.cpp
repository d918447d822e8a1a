// SumToShape, and gradients of broadcast inputs made of it.
#include "opkit/ops/support/node_gradient.hpp"

#include <doctest/doctest.h>

#include "opkit/interop/doctest.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/unary.hpp"
#include "opkit/ops/math/variadic.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace node_gradient_test {
using namespace opkit;

namespace {

OPKIT_OPERATOR_SCHEMA(UsesMissing).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
OPKIT_NODE_GRADIENT(UsesMissing) { Give(0, "NotInThisProgram", {GO(0)}); }

Floats SumTo(const Tensor& x, const Shape& shape) {
  const Tensor sum = Invoke("SumToShape", {x, Tensor(shape, DType::kFloat32)})[0];
  CHECK(sum.shape() == shape);
  return sum.ToVector<float>();
}

TEST_CASE("every standard operator declares its gradient, or that it has none") {
  int standard = 0;
  for (const std::string& op : RegisteredOperators()) {
    CAPTURE(op);
    if (!Contains(OpRegistry::Global().GetSchema(op).file(), "opkit/ops/")) continue;
    ++standard;
    CHECK(GradientRegistry::Global().Find(op));
  }
  CHECK(standard > 50);
}

TEST_CASE("the error for a gradient of operators outside the program names the header") {
  GradientNames names;
  const Error error = ErrorOf(
      [&] { GetGradientForOp(OperatorDef("UsesMissing", {"x"}, {"y"}), {{"y_grad"}}, names); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(error.message() ==
        "the gradient of UsesMissing uses operator NotInThisProgram, which is not in this program: "
        "include opkit/ops/all.hpp, or link opkit::ops");
}

TEST_CASE("an operator that computes a gradient says that second derivatives need its own") {
  const OperatorDef def("DetGradient", {"x", "dy"}, {"dx"});
  CHECK(Contains(ErrorOf([&] { GetGradientForOp(def, {GradientValue("g")}); }).message(),
                 "second derivatives need one"));
}

TEST_CASE("second derivatives go through sums, products and copies") {
  const auto random = [](Shape shape, uint64_t seed) {
    return RandomTensor(shape, DType::kFloat64, seed);
  };
  const auto axes = Tensor::From<int64_t>({1}, {1});
  const auto fault = [](const OperatorDef& def, const std::vector<Tensor>& inputs,
                        const std::vector<int>& of) {
    const auto result = CheckGradient(def, inputs, {.inputs = of});
    return result.ok() ? "" : ToString(result);
  };
  const OperatorDef sum("SumToShape", {"x", "like"}, {"y"}, {{"factor", 0.5f}});
  CHECK(fault(sum, {random({2, 3}, 1), random({3}, 2)}, {0}) == "");
  for (const int mean : {0, 1}) {
    const OperatorDef spread("ReduceGradient", {"x", "axes", "dy"}, {"dx"}, {{"mean", mean}});
    CHECK(fault(spread, {random({2, 3}, 1), axes, random({2}, 2)}, {2}) == "");
  }
  for (const int of : {0, 1}) {
    const OperatorDef product("MatMulGradient", {"dy", "a", "b"}, {"dx"}, {{"of", of}});
    CHECK(fault(product, {random({2, 2, 4}, 1), random({2, 3}, 2), random({2, 3, 4}, 3)},
                {0, 2 - of}) == "");
  }
  for (const char* of : {"X", "W"}) {
    const Arguments args = {{"of", of}, {"strides", std::vector<int64_t>{2}}};
    const int other = of[0] == 'X' ? 1 : 0;
    const OperatorDef conv("ConvGradient", {"x", "w", "dy"}, {"dx"}, args);
    CHECK(fault(conv, {random({1, 2, 6}, 1), random({3, 2, 3}, 2), random({1, 3, 2}, 3)},
                {other, 2}) == "");
    const OperatorDef transposed("ConvTransposeGradient", {"x", "w", "dy"}, {"dx"}, args);
    CHECK(fault(transposed, {random({1, 2, 3}, 1), random({2, 1, 2}, 2), random({1, 1, 6}, 3)},
                {other, 2}) == "");
  }
  const OperatorDef gather("GatherGradient", {"dy", "i", "x"}, {"dx"}, {{"axis", 1}});
  CHECK(fault(gather, {random({2, 3}, 1), Tensor::From<int64_t>({3}, {1, 0, 1}), random({2, 4}, 2)},
              {0}) == "");
  const auto list = [](int64_t value) { return Tensor::From<int64_t>({1}, {value}); };
  const OperatorDef slice("SliceGradient", {"dy", "shape", "starts", "ends", "axes"}, {"dx"});
  CHECK(fault(slice,
              {random({2, 2}, 1), Tensor::From<int64_t>({2}, {2, 5}), list(1), list(3), list(1)},
              {0}) == "");
}

TEST_CASE("axes that broadcasting repeats are summed") {
  const Tensor x = Tensor::From<float>({2, 3}, {1, 2, 3, 10, 20, 30});
  CHECK(SumTo(x, {2, 3}) == x.ToVector<float>());
  CHECK(SumTo(x, {3}) == Floats{11, 22, 33});
  CHECK(SumTo(x, {1, 3}) == Floats{11, 22, 33});
  CHECK(SumTo(x, {2, 1}) == Floats{6, 60});
  CHECK(SumTo(x, {}) == Floats{66});
  CHECK(SumTo(Tensor({0, 3}, DType::kFloat32), {3}) == Floats{0, 0, 0});
}

TEST_CASE("the sum may take the place of an addend") {
  Workspace ws;
  *ws.CreateTensor("x") = Tensor::From<float>({2, 3}, {1, 2, 3, 10, 20, 30});
  *ws.CreateTensor("like") = Tensor({2, 1}, DType::kFloat32);
  CreateOperator(OperatorDef("SumToShape", {"x", "like"}, {"x"}), &ws)->Run();
  CHECK(ws.GetTensor("x")->ToVector<float>() == Floats{6, 60});
}

TEST_CASE("a shape that cannot be broadcast to the gradient's is refused") {
  const Tensor x({2, 3}, DType::kFloat32);
  CHECK(ErrorOf([&] {
          SumTo(x, {2, 2});
        }).message() == "SumToShape: X of shape [2, 3] cannot be summed to the shape [2, 2]");
  CHECK(ErrorOf([&] {
          SumTo(x, {1, 2, 3});
        }).message() == "SumToShape: X of shape [2, 3] cannot be summed to the shape [1, 2, 3]");
  CHECK(ErrorOf([&] { SumTo(Tensor({3}, DType::kFloat32), {2}); }).code() ==
        ErrorCode::kInvalidArgument);
}

TEST_CASE("gradients have the shapes of their inputs") {
  const Shape shapes[][2] = {{Shape{2, 3}, Shape{3}},    {Shape{2, 1}, Shape{1, 4}},
                             {Shape{}, Shape{5}},        {Shape{2, 2, 3}, Shape{2, 1, 3}},
                             {Shape{4, 1}, Shape{4, 1}}, {Shape{1}, Shape{2, 1, 2}}};
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Sum"})
    for (const auto& pair : shapes) {
      CAPTURE(op);
      CAPTURE(pair[0]);
      CAPTURE(pair[1]);
      const auto inputs = detail::MakeTestInputs({pair[0], pair[1]}, DType::kFloat64, 3, 0.5, 2);
      GradientCheckOptions options;
      options.inputs = {0, 1};
      const auto result = CheckGradient(OperatorDef(op, {"a", "b"}, {"c"}), inputs, options);
      CHECK_MESSAGE(result.ok(), ToString(result));
    }
}

TEST_CASE("a value that both operands are gets both gradients") {
  const auto x = detail::MakeTestInputs({Shape{3}}, DType::kFloat64, 3, 0.5, 2)[0];
  const auto result = CheckGradient(OperatorDef("Mul", {"x", "x"}, {"y"}), {x, x}, {.inputs = {0}});
  CHECK_MESSAGE(result.ok(), ToString(result));
}

TEST_CASE("no gradient flows back where none comes in") {
  const GradientOpsMeta meta =
      GetGradientForOp(OperatorDef("Mul", {"a", "b"}, {"c"}), {GradientValue()});
  CHECK(meta.ops.empty());
  REQUIRE(meta.g_input.size() == 2);
  CHECK(meta.g_input[0].IsEmpty());
}

}  // namespace
}  // namespace node_gradient_test

// The reductions: values, axes, empty sets, shapes, errors.
#include "opkit/ops/math/reduce.hpp"

#include <doctest/doctest.h>

#include "opkit/op/invoke.hpp"
#include "ops/infer.hpp"
#include "support/check_node.hpp"
#include "support/tensors.hpp"

namespace reduce_test {
using namespace opkit_tests;

namespace {

const float kInfinity = std::numeric_limits<float>::infinity();

Tensor Axes(std::initializer_list<int64_t> axes) {
  return Tensor::From<int64_t>({static_cast<int64_t>(axes.size())}, axes);
}
Floats Reduced(const char* op, const Tensor& x, std::initializer_list<int64_t> axes) {
  return Invoke(op, {x, Axes(axes)})[0].ToVector<float>();
}

TEST_CASE("Each reduction of the rows of a matrix") {
  const Tensor x = Tensor::From<float>({2, 3}, {1, -2, 3, 0.5f, 0.5f, 4});
  CHECK(Reduced("ReduceSum", x, {1}) == Floats{2, 5});
  CHECK(Reduced("ReduceMean", x, {-1}) == Floats{2.f / 3, 5.f / 3});
  CHECK(Reduced("ReduceProd", x, {1}) == Floats{-6, 1});
  CHECK(Reduced("ReduceMax", x, {1}) == Floats{3, 4});
  CHECK(Reduced("ReduceMin", x, {1}) == Floats{-2, 0.5f});
  CHECK(Reduced("ReduceL1", x, {1}) == Floats{6, 5});
  CHECK(Reduced("ReduceSumSquare", x, {1}) == Floats{14, 16.5f});
  CHECK(Reduced("ReduceL2", x, {1})[0] == doctest::Approx(std::sqrt(14.)));
  CHECK(Reduced("ReduceLogSum", x, {1})[1] == doctest::Approx(std::log(5.)));
  CHECK(Reduced("ReduceLogSumExp", x, {1})[0] ==
        doctest::Approx(std::log(std::exp(1.) + std::exp(-2.) + std::exp(3.))));
}

TEST_CASE("Axes in the middle, several, and all of them") {
  const Tensor x = Counting({2, 3, 2});
  CHECK(Reduced("ReduceSum", x, {1}) == Floats{6, 9, 24, 27});
  CHECK(Reduced("ReduceSum", x, {0, 2}) == Floats{14, 22, 30});
  CHECK(Reduced("ReduceSum", x, {-1, 0}) == Floats{14, 22, 30});
  CHECK(Reduced("ReduceSum", x, {0}) == Floats{6, 8, 10, 12, 14, 16});
  CHECK(Invoke("ReduceSum", {x})[0].shape() == Shape{1, 1, 1});
  CHECK(Invoke("ReduceSum", {x})[0].ToVector<float>() == Floats{66});
  CHECK(Invoke("ReduceSum", {x}, {{"keepdims", 0}})[0].shape() == Shape{});
  CHECK(Invoke("ReduceMax", {x, Axes({0, 2})}, {{"keepdims", 0}})[0].shape() == Shape{3});
  CHECK(Invoke("ReduceMax", {Tensor::Scalar(3.f)})[0].ToVector<float>() == Floats{3});
  const Tensor narrow = Tensor::From<int32_t>({1}, {1});
  CHECK(Invoke("ReduceSum", {x, narrow})[0].ToVector<float>() == Floats{6, 9, 24, 27});
}

TEST_CASE("No axes mean all, or none with noop_with_empty_axes") {
  const Tensor x = Tensor::From<float>({2}, {3, -4});
  CHECK(Invoke("ReduceSum", {x, Axes({})})[0].ToVector<float>() == Floats{-1});
  const Arguments noop = {{"noop_with_empty_axes", 1}};
  CHECK(Invoke("ReduceSum", {x, Axes({})}, noop)[0].ToVector<float>() == Floats{3, -4});
  CHECK(Invoke("ReduceSum", {x}, noop)[0].ToVector<float>() == Floats{3, -4});
  // With no axes to reduce, the squares and absolute values are still computed.
  CHECK(Invoke("ReduceSumSquare", {x}, noop)[0].ToVector<float>() == Floats{9, 16});
  CHECK(Invoke("ReduceL1", {x}, noop)[0].ToVector<float>() == Floats{3, 4});
}

TEST_CASE("The empty set gives the value that changes no other") {
  const Tensor none({2, 0}, DType::kFloat32);
  CHECK(Reduced("ReduceSum", none, {1}) == Floats{0, 0});
  CHECK(Reduced("ReduceProd", none, {1}) == Floats{1, 1});
  CHECK(Reduced("ReduceMax", none, {1}) == Floats{-kInfinity, -kInfinity});
  CHECK(Reduced("ReduceMin", none, {1}) == Floats{kInfinity, kInfinity});
  CHECK(Reduced("ReduceL2", none, {1}) == Floats{0, 0});
  CHECK(Reduced("ReduceLogSum", none, {1}) == Floats{-kInfinity, -kInfinity});
  CHECK(Reduced("ReduceLogSumExp", none, {1}) == Floats{-kInfinity, -kInfinity});
  CHECK(std::isnan(Reduced("ReduceMean", none, {1})[0]));
  CHECK(Invoke("ReduceSum", {none, Axes({0})})[0].shape() == Shape{1, 0});
  const Tensor bytes({0}, DType::kUInt8), flags({0}, DType::kBool), ints({0}, DType::kInt32);
  CHECK(Invoke("ReduceMax", {bytes})[0].ToVector<uint8_t>()[0] == 0);
  CHECK(Invoke("ReduceMin", {bytes})[0].ToVector<uint8_t>()[0] == 255);
  CHECK(Invoke("ReduceMax", {flags})[0].data<bool>()[0] == false);
  CHECK(Invoke("ReduceMin", {flags})[0].data<bool>()[0] == true);
  CHECK(Invoke("ReduceMax", {ints})[0].ToVector<int32_t>()[0] ==
        std::numeric_limits<int32_t>::min());
  CHECK(Contains(ErrorOf([&] { Invoke("ReduceMean", {ints}); }).message(),
                 "the mean of no integers is not defined"));
}

TEST_CASE("Integers wrap around, and real results are cut towards zero") {
  const Tensor x = Tensor::From<int32_t>({2}, {std::numeric_limits<int32_t>::max(), 1});
  CHECK(Invoke("ReduceSum", {x})[0].ToVector<int32_t>()[0] == std::numeric_limits<int32_t>::min());
  const Tensor few = Tensor::From<int64_t>({2}, {-3, -4});
  CHECK(Invoke("ReduceMean", {few})[0].ToVector<int64_t>()[0] == -3);
  // The mean of integers is one of them or lies between, whatever their sum is.
  const Tensor large = Tensor::From<int32_t>({4}, {1 << 30, 1 << 30, 1 << 30, -3});
  CHECK(Invoke("ReduceMean", {large})[0].ToVector<int32_t>()[0] == 805306367);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const Tensor largest = Tensor::From<int64_t>({3}, {kMost, kMost, kMost - 3});
  CHECK(Invoke("ReduceMean", {largest})[0].ToVector<int64_t>()[0] == kMost - 1);
  CHECK(Invoke("ReduceL1", {few})[0].ToVector<int64_t>()[0] == 7);
  CHECK(Invoke("ReduceL2", {few})[0].ToVector<int64_t>()[0] == 5);
  const Tensor flags = Tensor::From<bool>({2, 2}, {true, false, true, true});
  CHECK(Invoke("ReduceMin", {flags, Axes({1})})[0].data<bool>()[0] == false);
  CHECK(Invoke("ReduceMin", {flags, Axes({1})})[0].data<bool>()[1] == true);
}

TEST_CASE("NaN wins over every number, and infinities do not become NaN") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* op : {"ReduceMax", "ReduceMin"})
    for (const auto& x :
         {Tensor::From<float>({3}, {nan, 1, 2}), Tensor::From<float>({3}, {1, nan, 2})})
      CHECK(std::isnan(Reduced(op, x, {0})[0]));
  CHECK(Reduced("ReduceLogSumExp", Tensor::From<float>({2}, {kInfinity, 1}), {0})[0] == kInfinity);
  CHECK(Reduced("ReduceLogSumExp", Tensor::From<float>({2}, {-kInfinity, -kInfinity}), {0})[0] ==
        -kInfinity);
  CHECK(Reduced("ReduceLogSumExp", Tensor::From<float>({2}, {1000, 1000}), {0})[0] ==
        doctest::Approx(1000 + std::log(2.)));
}

TEST_CASE("A long sum loses nothing") {
  CHECK(Invoke("ReduceSum", {Filled({3'000'000}, 0.1f)})[0].ToVector<float>()[0] ==
        doctest::Approx(300'000.00447));
}

TEST_CASE("The shape needs the axes, or their number") {
  const Tensor one = Axes({1}), both = Axes({0, -1});
  auto axes = [](const Tensor& values) { return TensorInfo::OfConstant(values); };
  const TensorInfo x = F({Sym("N"), 3, 4});
  CHECK(Inferred("ReduceSum", {x, axes(one)}) == "float32[N, 1, 4]");
  CHECK(Inferred("ReduceSum", {x, axes(one)}, {{"keepdims", 0}}) == "float32[N, 4]");
  CHECK(Inferred("ReduceSum", {x, axes(both)}, {{"keepdims", 0}}) == "float32[3]");
  CHECK(Inferred("ReduceSum", {x}, {{"keepdims", 0}}) == "float32[]");
  CHECK(Inferred("ReduceSum", {x}, {{"noop_with_empty_axes", 1}}) == "float32[N, 3, 4]");
  const TensorInfo unknown(DType::kInt64, SymbolicShape{2});
  CHECK(Inferred("ReduceSum", {x, unknown}) == "float32[?, ?, ?]");
  CHECK(Inferred("ReduceSum", {x, unknown}, {{"keepdims", 0}}) == "float32[?]");
  const TensorInfo open(DType::kInt64, SymbolicShape{Dim()});
  CHECK(Inferred("ReduceSum", {x, open}, {{"keepdims", 0}}) == "float32[rank unknown]");
  CHECK(Inferred("ReduceSum", {F(SymbolicShape()), axes(one)}) == "float32[rank unknown]");
}

TEST_CASE("Wrong axes and types are refused") {
  const Tensor out = Axes({2}), twice = Axes({0, -2}), matrix = Tensor::From<int64_t>({1, 1}, {0});
  auto axes = [](const Tensor& values) { return TensorInfo::OfConstant(values); };
  CHECK(Refused("ReduceSum", {F({2, 3}), axes(out)}) ==
        "ReduceSum: axis 2 is outside a tensor of rank 2, expected -2 to 1");
  CHECK(Contains(Refused("ReduceMax", {F({2, 3}), axes(twice)}), "axis -2 is named twice"));
  CHECK(Contains(Refused("ReduceMax", {F({2, 3}), axes(matrix)}), "must be a list of integers"));
  CHECK(Contains(Refused("ReduceSum", {{DType::kBool, Shape{2}}}), "input 0 'data' is bool[2]"));
  CHECK(Contains(Refused("ReduceSum", {F({2}), {DType::kInt64, Shape{3}}}, {{"keepdims", 0}}),
                 "'axes' has 3 elements, but the tensor has rank 1"));
}

TEST_CASE("Other axes in the next run of one operator") {
  ResolvedOperator sum("ReduceSum", 2, {{"keepdims", 0}});
  const Tensor x = Counting({2, 3});
  CHECK(sum({x, Axes({0})})[0].ToVector<float>() == Floats{3, 5, 7});
  CHECK(sum({x, Axes({1})})[0].ToVector<float>() == Floats{3, 12});
  CHECK(sum({x, Axes({0, 1})})[0].ToVector<float>() == Floats{15});
}

TEST_CASE("The reductions keep the promises of their schemas") {
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin",
                         "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"})
    CheckNode(OperatorDef(op, {"x", "axes"}, {"y"}), {Random({3, 4, 5}, 1), Axes({0, 2})});
}

TEST_CASE("Gradients of the reductions over any axes") {
  Tensor x = Random({2, 3, 4}, 5, DType::kFloat64);
  for (const char* op :
       {"ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
        "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum"}) {
    if (op == std::string("ReduceLogSum")) x = Invoke("Abs", {x})[0];
    for (const int keep : {0, 1}) {
      CAPTURE(op);
      CAPTURE(keep);
      const auto fault = [&](const std::vector<std::string>& names, std::vector<Tensor> inputs,
                             const Arguments& more = {}) {
        OperatorDef def(op, names, {"y"}, more);
        def.Arg("keepdims", keep);
        const auto result = CheckGradient(def, std::move(inputs), {.inputs = {0}});
        return result.ok() && result.elements_checked == 24 ? "" : ToString(result);
      };
      CHECK(fault({"x"}, {x}) == "");
      for (const Tensor& axes : {Axes({0}), Axes({1}), Axes({-1}), Axes({0, 2}), Axes({0, 1, 2})})
        CHECK(fault({"x", "axes"}, {x, axes}) == "");
      CHECK(fault({"x", "axes"}, {x, Axes({})}) == "");
      CHECK(fault({"x", "axes"}, {x, Axes({})}, {{"noop_with_empty_axes", 1}}) == "");
    }
  }
  const auto error = ErrorOf([&] {
    Invoke("ReduceGradient", {x, Axes({0}), Tensor({2, 2}, DType::kFloat64)});
  });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.message(), "expected the 12 elements that the data is reduced to"));
}

// Returns the gradient of x for the gradient 2 of each result, reduced along the last axis.
Floats GradientOf(const std::string& op, const Tensor& x) {
  const OperatorDef def(op, {"x", "axes"}, {"y"}, {{"keepdims", 0}});
  Workspace ws;
  *ws.CreateTensor("x") = x;
  *ws.CreateTensor("axes") = Axes({-1});
  CreateOperator(def, &ws)->Run();
  *ws.CreateTensor("g") =
      Invoke("Expand", {Tensor::Scalar(2.f), Axes({ws.GetTensor("y")->dim(0)})})[0];
  const GradientOpsMeta gradient = GetGradientForOp(def, {GradientValue("g")});
  for (const OperatorDef& node : gradient.ops) CreateOperator(node, &ws)->Run();
  return ws.GetTensor(gradient.g_input[0].dense)->ToVector<float>();
}

TEST_CASE("Gradients at zeros and of equal extremes") {
  const Tensor x = Tensor::From<float>({4, 3}, {2, 3, 4, 2, 0, 4, 0, 3, 0, 0, 0, 0});
  CHECK(GradientOf("ReduceProd", x) == Floats{24, 16, 12, 0, 16, 0, 0, 0, 0, 0, 0, 0});
  const Tensor y = Tensor::From<float>({2, 3}, {0, 0, 0, 3, 0, 4});
  CHECK(GradientOf("ReduceL2", y) == Floats{0, 0, 0, 1.2f, 0, 1.6f});
  const Tensor z = Tensor::From<float>({2, 4}, {5, 1, 5, 3, 2, 2, 2, 2});
  CHECK(GradientOf("ReduceMax", z) == Floats{1, 0, 1, 0, 0.5f, 0.5f, 0.5f, 0.5f});
  CHECK(GradientOf("ReduceMin", z) == Floats{0, 2, 0, 0, 0.5f, 0.5f, 0.5f, 0.5f});
}

TEST_CASE("ReduceGradient keeps the promises of its schema") {
  CheckNode(OperatorDef("ReduceGradient", {"x", "axes", "dy"}, {"dx"}, {{"mean", 1}}),
            {Random({3, 4, 5}, 1), Axes({0, 2}), Random({1, 4, 1}, 2)});
}

}  // namespace
}  // namespace reduce_test

// Max, Mean, Min, Sum of one, two and more tensors.
#include "opkit/ops/math/variadic.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "opkit/interop/doctest.hpp"
#include "opkit/op/invoke.hpp"
#include "support/error_of.hpp"
#include "support/sanitizers.hpp"
#include "support/tensors.hpp"

namespace variadic_test {
using namespace opkit;

namespace {

Floats Run(const std::string& op, const std::vector<Tensor>& inputs) {
  return Invoke(op, inputs)[0].ToVector<float>();
}

TEST_CASE("Max, Min, Sum and Mean combine the inputs element by element") {
  const std::vector<Tensor> inputs{Vector({3, 2, 1}), Vector({1, 4, 4}), Vector({2, 5, 3})};
  CHECK(Run("Max", inputs) == Floats{3, 5, 4});
  CHECK(Run("Min", inputs) == Floats{1, 2, 1});
  CHECK(Run("Sum", inputs) == Floats{6, 11, 8});
  CHECK(Run("Mean", {Vector({3, 0, 2}), Vector({1, 3, 4}), Vector({2, 6, 6})}) == Floats{2, 3, 4});
}

TEST_CASE("one input is copied, and two are combined") {
  const Tensor a = Vector({1, 2}), b = Vector({5, 0});
  for (const char* op : {"Max", "Mean", "Min", "Sum"}) CHECK(Run(op, {a}) == Floats{1, 2});
  CHECK(Run("Max", {a, b}) == Floats{5, 2});
  CHECK(Run("Mean", {a, b}) == Floats{3, 1});
}

TEST_CASE("a NaN on either side is the result") {
  const Tensor a = Vector({NAN, 1}), b = Vector({1, NAN});
  for (const char* op : {"Max", "Min"})
    for (const float x : Run(op, {a, b})) CHECK(std::isnan(x));
}

TEST_CASE("Max and Min compare integers by their own signs and widths") {
  const Tensor a = Tensor::From<uint64_t>({2}, {UINT64_MAX, 1}),
               b = Tensor::From<uint64_t>({2}, {0, 2});
  CHECK(Invoke("Max", {a, b})[0].ToVector<uint64_t>() == std::vector<uint64_t>{UINT64_MAX, 2});
  const Tensor c = Tensor::From<int8_t>({2}, {-3, 4});
  CHECK(Invoke("Min", {c, Tensor::Scalar(int8_t{0})})[0].ToVector<int8_t>() ==
        std::vector<int8_t>{-3, 0});
}

TEST_CASE("every input is broadcast, over more than one block") {
  const int64_t rows = 9, columns = 1000;
  Tensor a({rows, 1}, DType::kFloat32), b({columns}, DType::kFloat32),
      c({rows, columns}, DType::kFloat32);
  for (int64_t i = 0; i < rows; ++i) a.mutable_data<float>()[i] = static_cast<float>(1000 * i);
  for (int64_t j = 0; j < columns; ++j) b.mutable_data<float>()[j] = static_cast<float>(j);
  for (int64_t i = 0; i < rows * columns; ++i)
    c.mutable_data<float>()[i] = static_cast<float>(-2 * i);
  const Tensor d = Tensor::Scalar(4.f);
  for (const auto& inputs : {std::vector<Tensor>{a, b, c, d}, std::vector<Tensor>{d, c, b, a}}) {
    const Tensor sum = Invoke("Sum", inputs)[0];
    REQUIRE(sum.shape() == Shape{rows, columns});
    bool right = true;
    for (int64_t i = 0; i < rows * columns; ++i)
      right &= sum.data<float>()[i] ==
               static_cast<float>(1000 * (i / columns) + i % columns - 2 * i + 4);
    CHECK(right);
  }
}

TEST_CASE("the output may be any of the inputs") {
  for (const char* out : {"a", "b", "c"}) {
    Workspace ws;
    *ws.CreateTensor("a") = Vector({1, 2, 3});
    *ws.CreateTensor("b") = Vector({10, 20, 30});
    *ws.CreateTensor("c") = Vector({100, 200, 300});
    const void* memory = ws.GetTensor(out)->raw_data();
    CreateOperator(OperatorDef("Sum", {"a", "b", "c"}, {out}), &ws)->Run();
    CHECK(ws.GetTensor(out)->ToVector<float>() == Floats{111, 222, 333});
    CHECK(ws.GetTensor(out)->raw_data() == memory);
  }
}

TEST_CASE("in place of an input that is broadcast nothing is read after it was written") {
  Workspace ws;
  Tensor small({64}, DType::kFloat32);
  small.Resize(Shape{2, 1});
  small.mutable_data<float>()[0] = 10;
  small.mutable_data<float>()[1] = 20;
  *ws.CreateTensor("a") = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  *ws.CreateTensor("b") = small;
  CreateOperator(OperatorDef("Max", {"a", "b"}, {"b"}), &ws)->Run();
  CHECK(ws.GetTensor("b")->ToVector<float>() == Floats{10, 10, 20, 20});
}

TEST_CASE("the output's shape is broadcast from all inputs, and none can be left out") {
  const OpSchema& schema = OpRegistry::Global().GetSchema("Sum");
  const OperatorDef def("Sum", {"a", "b", "c"}, {"y"});
  const TensorInfo a(DType::kFloat32, {Sym("N"), 1}), b(DType::kUndefined, {Sym("N"), 4}),
      c(DType::kFloat32, {1});
  const auto out = schema.InferOutputs(def, {a, b, c});
  CHECK(out[0].shape == SymbolicShape{Sym("N"), 4});
  CHECK(out[0].dtype == DType::kFloat32);
  CHECK(ErrorOf([&] { Invoke("Sum", {Tensor::Scalar(1)}); }).message() ==
        "input 0 'data_0' is int32[], expected one of [float32, float64, float16, bfloat16]");
  CHECK(ErrorOf([&] {
          schema.InferOutputs(OperatorDef("Sum", {"a", ""}, {"y"}), {a, TensorInfo()});
        }).message() == "Sum: input 1 has no name; none of its inputs can be left out");
}

TEST_CASE("the operators and their gradients keep the promises of their schemas") {
#ifdef OPKIT_TESTS_ADDRESS_SANITIZER  // Min and Sum have the loops of Max
  constexpr const char* kOps[] = {"Max", "Mean"};
#else
  constexpr const char* kOps[] = {"Max", "Mean", "Min", "Sum"};
#endif
  for (const char* op : kOps)
    for (const int inputs : {1, 2, 3}) {
      CheckOptions options;
      options.num_inputs = inputs;
      OPKIT_CHECK_OPERATOR(op, options);
    }
  for (const char* op : {"Max", "Mean", "Min", "Sum"}) CHECK(HasGradient(op));
}

TEST_CASE("the gradients of Max and Min go to the chosen input, and equal inputs share") {
  const Tensor a = Tensor::From<double>({2, 3}, {1, 5, 3, -4, 2, 6});
  const Tensor b = Tensor::From<double>({3}, {2, 4, -1}), c = Tensor::Scalar(2.5);
  for (const char* op : {"Max", "Min"}) {
    CAPTURE(op);
    const auto result =
        CheckGradient(OperatorDef(op, {"a", "b", "c"}, {"y"}), {a, b, c}, {.inputs = {0, 1, 2}});
    CHECK_MESSAGE(result.ok(), ToString(result));
    const OperatorDef def(op, {"a", "b", "c"}, {"y"});
    Workspace ws;
    *ws.CreateTensor("a") = Vector<float>({1, 7});
    *ws.CreateTensor("b") = Vector<float>({1, 7});
    *ws.CreateTensor("c") = Vector<float>({1, -9});
    *ws.CreateTensor("y") =
        Invoke(op, {*ws.GetTensor("a"), *ws.GetTensor("b"), *ws.GetTensor("c")})[0];
    *ws.CreateTensor("g") = Vector<float>({3, 8});
    const GradientOpsMeta gradient = GetGradientForOp(def, {GradientValue("g")});
    for (const OperatorDef& node : gradient.ops) CreateOperator(node, &ws)->Run();
    const auto of = [&](size_t i) {
      return ws.GetTensor(gradient.g_input[i].dense)->ToVector<float>();
    };
    const bool max = op == std::string("Max");
    CHECK(of(0) == (max ? Floats{1, 4} : Floats{1, 0}));
    CHECK(of(1) == (max ? Floats{1, 4} : Floats{1, 0}));
    CHECK(of(2) == (max ? Floats{1, 0} : Floats{1, 8}));
  }
}

}  // namespace
}  // namespace variadic_test

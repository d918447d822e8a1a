// Add, Sub, Mul, Div, Mod, Pow; and what all elementwise operators share: broadcasting, running in
// place, symbols.
#include "opkit/ops/math/arithmetic.hpp"

#include <doctest/doctest.h>

#include "opkit/interop/doctest.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/ops/math/unary.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace arithmetic_test {
using namespace opkit;

namespace {

template <class T>
std::vector<T> Run(const std::string& op, const Tensor& a, const Tensor& b, Arguments args = {}) {
  return Invoke(op, {a, b}, std::move(args))[0].ToVector<T>();
}

TEST_CASE("Add, Sub, Mul and Div compute in the type of their inputs") {
  const Tensor a = Vector<float>({1, -2, 3}), b = Vector<float>({4, 0.5f, -2});
  CHECK(Run<float>("Add", a, b) == Floats{5, -1.5f, 1});
  CHECK(Run<float>("Sub", a, b) == Floats{-3, -2.5f, 5});
  CHECK(Run<float>("Mul", a, b) == Floats{4, -1, -6});
  CHECK(Run<float>("Div", a, b) == Floats{0.25f, -4, -1.5f});
  CHECK(Run<float>("Div", Vector<float>({1}), Vector<float>({0}))[0] == INFINITY);
  CHECK(Run<double>("Add", Vector<double>({0.1}), Vector<double>({0.2}))[0] == 0.1 + 0.2);
}

TEST_CASE("integers wrap around") {
  CHECK(Run<int32_t>("Add", Vector<int32_t>({INT32_MAX}), Vector<int32_t>({1})) ==
        std::vector<int32_t>{INT32_MIN});
  CHECK(Run<int64_t>("Sub", Vector<int64_t>({INT64_MIN}), Vector<int64_t>({1})) ==
        std::vector<int64_t>{INT64_MAX});
  CHECK(Run<uint16_t>("Mul", Vector<uint16_t>({65535}), Vector<uint16_t>({65535})) ==
        std::vector<uint16_t>{1});
  CHECK(Run<int8_t>("Mul", Vector<int8_t>({100}), Vector<int8_t>({3})) == std::vector<int8_t>{44});
}

TEST_CASE("integer division is cut off, and by zero an error") {
  const Tensor a = Vector<int32_t>({-7, 7, -7, INT32_MIN}), b = Vector<int32_t>({2, -2, -2, -1});
  CHECK(Run<int32_t>("Div", a, b) == std::vector<int32_t>{-3, -3, 3, INT32_MIN});
  CHECK(Run<uint8_t>("Div", Vector<uint8_t>({200}), Vector<uint8_t>({3})) ==
        std::vector<uint8_t>{66});
  for (const char* op : {"Div", "Mod"}) {
    const Error error = ErrorOf([&] { Invoke(op, {a, Vector<int32_t>({1, 1, 0, 1})}); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(error.message() ==
          StrCat(op,
                 ": element 2 of the divisor int32[4] on cpu is 0; an integer cannot be divided "
                 "by it"));
  }
  // Nothing is divided, so nothing is wrong.
  const Tensor none({0}, DType::kInt32);
  CHECK(Invoke("Div", {none, Vector<int32_t>({0})})[0].shape() == Shape{0});
}

TEST_CASE("a division by zero in place leaves the input as it was") {
  Workspace ws;
  *ws.CreateTensor("a") = Vector<int32_t>({8, 8});
  *ws.CreateTensor("b") = Vector<int32_t>({2, 0});
  const auto op = CreateOperator(OperatorDef("Div", {"a", "b"}, {"a"}), &ws);
  CHECK_THROWS_AS(op->Run(), Error);
  CHECK(ws.GetTensor("a")->ToVector<int32_t>() == std::vector<int32_t>{8, 8});
}

TEST_CASE("Mod has the sign of the divisor, with fmod that of the dividend") {
  const Tensor a = Vector<int64_t>({-4, 7, 5, 4, -7, 8, INT64_MIN});
  const Tensor b = Vector<int64_t>({2, -3, 8, -2, 3, 5, -1});
  CHECK(Run<int64_t>("Mod", a, b) == std::vector<int64_t>{0, -2, 5, 0, 2, 3, 0});
  CHECK(Run<int64_t>("Mod", a, b, {{"fmod", 1}}) == std::vector<int64_t>{0, 1, 5, 0, -1, 3, 0});
  CHECK(Run<uint8_t>("Mod", Vector<uint8_t>({7}), Vector<uint8_t>({4})) == std::vector<uint8_t>{3});
  CHECK(Run<float>("Mod", Vector<float>({-4.5f, 5.5f}), Vector<float>({2, -3}), {{"fmod", 1}}) ==
        Floats{-0.5f, 2.5f});
  CHECK(ErrorOf([&] {
          Invoke("Mod", {a, b}, {{"fmod", 2}});
        }).message() == "Mod: fmod is 2, expected 0 or 1");
}

TEST_CASE("Mod of numbers has the sign of the divisor too, and so has a remainder of 0") {
  CHECK(Run<float>("Mod", Vector<float>({-4.5f, 5.5f, -4.5f, 5.5f}),
                   Vector<float>({2, -3, -2, 3})) == Floats{1.5f, -0.5f, -0.5f, 2.5f});
  const Floats zeros = Run<float>("Mod", Vector<float>({-4, 4, -0.f}), Vector<float>({2, -2, 3}));
  CHECK(zeros == Floats{0, 0, 0});
  CHECK(!std::signbit(zeros[0]));
  CHECK(std::signbit(zeros[1]));
  CHECK(!std::signbit(zeros[2]));
  const Floats ends = Run<float>("Mod", Vector<float>({3, -3, 3, INFINITY}),
                                 Vector<float>({INFINITY, INFINITY, 0, 2}));
  CHECK(ends[0] == 3);
  CHECK(ends[1] == INFINITY);
  CHECK(std::isnan(ends[2]));
  CHECK(std::isnan(ends[3]));
}

TEST_CASE("Pow: the exponent may be of another type") {
  const Tensor a = Vector<float>({1, 2, 3});
  CHECK(Run<float>("Pow", a, Vector<float>({4, 5, 6})) == Floats{1, 32, 729});
  CHECK(Run<float>("Pow", a, Vector<int64_t>({4, 5, 6})) == Floats{1, 32, 729});
  CHECK(Run<float>("Pow", a, Vector<uint8_t>({2, 2, 2})) == Floats{1, 4, 9});
  CHECK(Run<float>("Pow", a, Tensor::Scalar(-1.f))[1] == 0.5f);
  CHECK(Run<int32_t>("Pow", Vector<int32_t>({1, 2, 3}), Vector<float>({4, 5, 6})) ==
        std::vector<int32_t>{1, 32, 729});
  CHECK(std::isnan(Run<float>("Pow", Tensor::Scalar(-2.f), Tensor::Scalar(0.5f))[0]));
}

TEST_CASE("Pow of integers is exact, and defined for every exponent") {
  CHECK(Run<int64_t>("Pow", Vector<int64_t>({3, -3, 2, 2}), Vector<int64_t>({39, 39, 62, 64})) ==
        std::vector<int64_t>{4052555153018976267, -4052555153018976267, int64_t{1} << 62, 0});
  CHECK(Run<int32_t>("Pow", Vector<int32_t>({2, 1, -1, -1, 0, 0}),
                     Vector<int32_t>({-1, -5, -3, -2, -1, 0})) ==
        std::vector<int32_t>{0, 1, -1, 1, 0, 1});
}

TEST_CASE("inputs are broadcast both ways") {
  const Tensor column = Tensor::From<float>({2, 1}, {10, 20}), row = Vector<float>({1, 2, 3});
  const Tensor sum = Invoke("Add", {column, row})[0];
  CHECK(sum.shape() == Shape{2, 3});
  CHECK(sum.ToVector<float>() == Floats{11, 12, 13, 21, 22, 23});
  CHECK(Run<float>("Sub", row, column) == Floats{-9, -8, -7, -19, -18, -17});
  CHECK(Invoke("Add", {row, Tensor({0, 3}, DType::kFloat32)})[0].shape() == Shape{0, 3});
  CHECK(Invoke("Add", {Tensor::Scalar(1.f), Tensor::Scalar(2.f)})[0].shape() == Shape{});
}

TEST_CASE("shapes that cannot be broadcast are reported, both with the node") {
  const Error error = ErrorOf([&] {
    Invoke("Add", {Vector<float>({1, 2}), Vector<float>({1, 2, 3})});
  });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() == "shapes [2] and [3] cannot be broadcast together: extents 2 and 3");
  CHECK(Contains(error.what(), "in shape inference of Add"));
  const Error types = ErrorOf([&] { Invoke("Add", {Vector<float>({1}), Vector<int32_t>({1})}); });
  CHECK(types.code() == ErrorCode::kTypeMismatch);
  CHECK(Contains(types.message(), "int32[1], expected dtype float32"));
  CHECK(Contains(ErrorOf([&] {
                   Invoke("Add", {Tensor::Scalar(true), Tensor::Scalar(true)});
                 }).message(),
                 "input 0 'A' is bool[], expected one of [float32"));
}

TEST_CASE("symbols that both inputs have are kept") {
  const OpSchema& schema = OpRegistry::Global().GetSchema("Add");
  const OperatorDef def("Add", {"a", "b"}, {"c"});
  auto infer = [&](const SymbolicShape& a, const SymbolicShape& b) {
    return schema.InferOutputs(
        def, {TensorInfo(DType::kFloat32, a), TensorInfo(DType::kUndefined, b)})[0];
  };
  CHECK(infer({Sym("N"), 3}, {Sym("N"), 1}).shape == SymbolicShape{Sym("N"), 3});
  CHECK(infer({Sym("N"), 3}, {1}).shape == SymbolicShape{Sym("N"), 3});
  CHECK(infer({Sym("N")}, {Sym("M")}).shape == SymbolicShape{Dim()});
  CHECK_FALSE(infer({Sym("N")}, {}).shape.is_known());
  CHECK(infer({2}, SymbolicShape()).dtype == DType::kFloat32);
}

// --- in place

TEST_CASE("in place an input of the output's shape is overwritten, its memory kept") {
  for (const bool second : {false, true}) {
    Workspace ws;
    *ws.CreateTensor("a") = second ? Vector<float>({10}) : Vector<float>({1, 2, 3});
    *ws.CreateTensor("b") = second ? Vector<float>({1, 2, 3}) : Vector<float>({10});
    const char* out = second ? "b" : "a";
    const void* memory = ws.GetTensor(out)->raw_data();
    CreateOperator(OperatorDef("Sub", {"a", "b"}, {out}), &ws)->Run();
    CHECK(ws.GetTensor(out)->raw_data() == memory);
    CHECK(ws.GetTensor(out)->ToVector<float>() == (second ? Floats{9, 8, 7} : Floats{-9, -8, -7}));
  }
}

TEST_CASE("in place of an input that is broadcast nothing is read after it was written") {
  // The small input's memory is large enough for the output, of short rows and of long ones.
  for (const int64_t width : {3, 60})
    for (const bool second : {false, true}) {
      Workspace ws;
      Tensor small({256}, DType::kFloat32), large({2, width}, DType::kFloat32);
      small.Resize(Shape{2, 1});
      small.mutable_data<float>()[0] = 10;
      small.mutable_data<float>()[1] = 20;
      Floats expected;
      for (int64_t i = 0; i < large.numel(); ++i) {
        const auto x = large.mutable_data<float>()[i] = static_cast<float>(i);
        const float difference = (i < width ? 10 : 20) - x;
        expected.push_back(second ? -difference : difference);
      }
      *ws.CreateTensor("a") = second ? large : small;
      *ws.CreateTensor("b") = second ? small : large;
      const char* out = second ? "b" : "a";
      CreateOperator(OperatorDef("Sub", {"a", "b"}, {out}), &ws)->Run();
      CHECK(ws.GetTensor(out)->ToVector<float>() == expected);
    }
}

TEST_CASE("shapes may change from run to run") {
  ResolvedOperator add("Add", 2);
  CHECK(add({Vector<float>({1, 2}), Vector<float>({1})})[0].ToVector<float>() == Floats{2, 3});
  CHECK(add({Vector<float>({1}), Vector<float>({1, 2, 3})})[0].ToVector<float>() ==
        Floats{2, 3, 4});
  CHECK(add({Vector<int32_t>({1}), Vector<int32_t>({5})})[0].ToVector<int32_t>() ==
        std::vector<int32_t>{6});
}

TEST_CASE("large tensors give the same on every number of threads") {
  const Tensor a = detail::MakeTestInputs({Shape{37, 1, 1001}}, DType::kFloat32, 1, -1, 1)[0];
  const Tensor b = detail::MakeTestInputs({Shape{3, 1001}}, DType::kFloat32, 2, -1, 1)[0];
  ThreadPool one(1), three(3);
  Floats single, several;
  {
    const PoolScope scope(one);
    single = Run<float>("Mul", a, b);
  }
  {
    const PoolScope scope(three);
    several = Run<float>("Mul", a, b);
  }
  CHECK(single == several);
  CHECK(single[1001 * 3 * 36 + 1001 * 2 + 1000] ==
        a.data<float>()[1001 * 36 + 1000] * b.data<float>()[1001 * 2 + 1000]);
}

TEST_CASE("the operators and their gradients keep the promises of their schemas") {
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Pow"}) OPKIT_CHECK_OPERATOR(op);
  CheckOptions options;
  options.args = {{"fmod", 1}};
  options.compare.gradient = false;  // its steps cross the jumps
  OPKIT_CHECK_OPERATOR("Mod", options);
  options.args = {};
  OPKIT_CHECK_OPERATOR("Mod", options);
}

std::string GradientFault(const OperatorDef& def, const std::vector<Tensor>& inputs,
                          const std::vector<int>& of) {
  const auto result = CheckGradient(def, inputs, {.inputs = of});
  return result.ok() ? "" : ToString(result);
}

TEST_CASE("gradients of Mod with remainders of both signs") {
  const Tensor a = Tensor::From<double>({2, 2}, {-4.5, 5.5, 7.25, -0.5});
  const Tensor b = Vector<double>({2, -3});
  for (const int fmod : {0, 1})
    CHECK(GradientFault(OperatorDef("Mod", {"a", "b"}, {"c"}, {{"fmod", fmod}}), {a, b}, {0, 1}) ==
          "");
}

TEST_CASE("gradients of Pow, of negative bases, of bases and exponents of 0 and of integers") {
  const OperatorDef def("Pow", {"x", "y"}, {"z"});
  const Tensor x = Vector<double>({0.5, 2, 3}), y = Tensor::From<double>({2, 1}, {-1.5, 2});
  CHECK(GradientFault(def, {x, y}, {0, 1}) == "");
  const Tensor mixed = Vector<double>({-2, 3, 0.5});
  CHECK(GradientFault(def, {mixed, Vector<int32_t>({3, -2, 0})}, {0}) == "");
  CHECK(GradientFault(def, {mixed, Vector<uint8_t>({3, 2, 0})}, {0}) == "");
  CHECK(GradientFault(def, {Vector<double>({0, 0, 0}), Vector<double>({0, 1, 2})}, {0}) == "");
  CHECK(GradientFault(def, {Vector<double>({0, 0}), Vector<double>({1, 2})}, {1}) == "");
}

TEST_CASE("the cost counts an operation an output, and each input once") {
  const OpSchema& schema = OpRegistry::Global().GetSchema("Add");
  const OperatorDef def("Add", {"a", "b"}, {"c"});
  const std::vector<TensorInfo> inputs{TensorInfo(DType::kFloat32, {2, 1}),
                                       TensorInfo(DType::kFloat32, {3})};
  const OpCost cost = schema.Cost(def, inputs, schema.InferOutputs(def, inputs));
  CHECK(cost.flops == 6);
  CHECK(cost.bytes_read == 20);
  CHECK(cost.bytes_written == 24);
}

}  // namespace
}  // namespace arithmetic_test

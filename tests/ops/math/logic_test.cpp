// And, Equal, Greater, GreaterOrEqual, IsInf, IsNaN, Less, LessOrEqual, Or, Xor.
#include "opkit/ops/math/logic.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "opkit/interop/doctest.hpp"
#include "opkit/op/invoke.hpp"
#include "support/error_of.hpp"

namespace logic_test {
using namespace opkit;

namespace {

using Bools = std::vector<bool>;

Bools Run(const std::string& op, const Tensor& a, const Tensor& b) {
  const Tensor result = Invoke(op, {a, b})[0];
  CHECK(result.dtype() == DType::kBool);
  const auto* data = static_cast<const uint8_t*>(result.raw_data());
  Bools out;
  for (int64_t i = 0; i < result.numel(); ++i) {
    CHECK(data[i] <= 1);
    out.push_back(data[i]);
  }
  return out;
}
// Bytes of a bool tensor, of which any but 0 is true.
Tensor FromBytes(std::initializer_list<uint8_t> bytes) {
  Tensor out({static_cast<int64_t>(bytes.size())}, DType::kBool);
  std::memcpy(out.raw_mutable_data(), bytes.begin(), bytes.size());
  return out;
}

TEST_CASE("comparisons go element by element, and are false of NaN") {
  const Tensor a = Tensor::From<float>({4}, {1, 2, 3, NAN}),
               b = Tensor::From<float>({4}, {2, 2, 2, NAN});
  CHECK(Run("Equal", a, b) == Bools{false, true, false, false});
  CHECK(Run("Greater", a, b) == Bools{false, false, true, false});
  CHECK(Run("GreaterOrEqual", a, b) == Bools{false, true, true, false});
  CHECK(Run("Less", a, b) == Bools{true, false, false, false});
  CHECK(Run("LessOrEqual", a, b) == Bools{true, true, false, false});
}

TEST_CASE("signs and widths of integers count") {
  CHECK(Run("Less", Tensor::Scalar(int8_t{-1}), Tensor::Scalar(int8_t{1})) == Bools{true});
  CHECK(Run("Less", Tensor::Scalar(uint8_t{255}), Tensor::Scalar(uint8_t{1})) == Bools{false});
  CHECK(Run("Equal", Tensor::Scalar(INT64_MAX), Tensor::Scalar(INT64_MAX - 1)) == Bools{false});
  CHECK(Run("Greater", Tensor::Scalar(UINT64_MAX), Tensor::Scalar(uint64_t{1})) == Bools{true});
}

TEST_CASE("and, or, equality of bools with any byte for true") {
  const Tensor a = FromBytes({0, 0, 1, 4}), b = FromBytes({0, 1, 0, 2});
  CHECK(Run("And", a, b) == Bools{false, false, false, true});
  CHECK(Run("Or", a, b) == Bools{false, true, true, true});
  CHECK(Run("Equal", a, b) == Bools{true, false, false, true});
}

TEST_CASE("inputs are broadcast, the output is bool also where little is known") {
  const Tensor column = Tensor::From<int32_t>({2, 1}, {1, 2}),
               row = Tensor::From<int32_t>({2}, {1, 2});
  CHECK(Run("Equal", column, row) == Bools{true, false, false, true});
  const OpSchema& schema = OpRegistry::Global().GetSchema("Less");
  const OperatorDef def("Less", {"a", "b"}, {"c"});
  const auto out =
      schema.InferOutputs(def, {TensorInfo(), TensorInfo(DType::kFloat32, {Sym("N")})});
  CHECK(out[0].dtype == DType::kBool);
  CHECK_FALSE(out[0].shape.has_rank());
}

TEST_CASE("types that they do not have are refused") {
  CHECK(ErrorOf([&] {
          Invoke("And", {Tensor::Scalar(1.f), Tensor::Scalar(1.f)});
        }).message() == "input 0 'A' is float32[], expected one of [bool]");
  CHECK(ErrorOf([&] {
          Invoke("Less", {Tensor::Scalar(true), Tensor::Scalar(true)});
        }).code() == ErrorCode::kTypeMismatch);
}

TEST_CASE("only operators on bools run in place") {
  const OpRegistry& registry = OpRegistry::Global();
  CHECK(registry.GetSchema("And").CanInplace(1, 0));
  CHECK_FALSE(registry.GetSchema("Equal").CanInplace(0, 0));
  CHECK_FALSE(registry.GetSchema("Less").CanInplace(0, 0));
}

TEST_CASE("Xor is true where one of two is") {
  const Tensor a = Tensor::From<bool>({4}, {false, false, true, true});
  const Tensor b = Tensor::From<bool>({4}, {false, true, false, true});
  CHECK(Invoke("Xor", {a, b})[0].ToVector<bool>() == std::vector<bool>{false, true, true, false});
}

TEST_CASE("IsNaN and IsInf test floating-point numbers") {
  const Tensor x = Tensor::From<float>({5}, {NAN, -INFINITY, INFINITY, 0, 3.4e38f});
  auto test = [&](const char* op, Arguments args = {}) {
    return Invoke(op, {x}, std::move(args))[0].ToVector<bool>();
  };
  CHECK(test("IsNaN") == std::vector<bool>{true, false, false, false, false});
  CHECK(test("IsInf") == std::vector<bool>{false, true, true, false, false});
  CHECK(test("IsInf", {{"detect_negative", 0}}) ==
        std::vector<bool>{false, false, true, false, false});
  CHECK(test("IsInf", {{"detect_positive", 0}}) ==
        std::vector<bool>{false, true, false, false, false});
  CHECK(Invoke("IsInf", {Tensor::Scalar(float16(70000.f))})[0].ToVector<bool>()[0]);
  CHECK(ErrorOf([] { Invoke("IsNaN", {Tensor::Scalar<int64_t>(1)}); }).code() ==
        ErrorCode::kTypeMismatch);
  for (const char* op : {"Xor", "IsInf", "IsNaN"}) OPKIT_CHECK_OPERATOR(op);
}

TEST_CASE("the operators keep the promises of their schemas") {
  for (const char* op : {"And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Or"})
    OPKIT_CHECK_OPERATOR(op);
}

}  // namespace
}  // namespace logic_test

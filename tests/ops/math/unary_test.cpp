// Abs, Ceil, Cos, Erf, Exp, Floor, Log, Neg, Not, Reciprocal, Round, Sign, Sin, Sqrt.
#include "opkit/ops/math/unary.hpp"

#include <doctest/doctest.h>

#include "opkit/interop/doctest.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "support/error_of.hpp"

namespace unary_test {
using namespace opkit;

namespace {

std::vector<float> Floats(const std::string& op, std::vector<float> x) {
  const auto n = static_cast<int64_t>(x.size());
  return Invoke(op, {Tensor::From<float>({n}, x)})[0].ToVector<float>();
}
template <class T>
std::vector<T> Values(const std::string& op, std::initializer_list<T> x) {
  const auto n = static_cast<int64_t>(x.size());
  return Invoke(op, {Tensor::From<T>({n}, x)})[0].template ToVector<T>();
}
bool Near(const std::vector<float>& found, const std::vector<float>& expected) {
  if (found.size() != expected.size()) return false;
  for (size_t i = 0; i < found.size(); ++i)
    if (!(std::fabs(found[i] - expected[i]) <= 1e-6f * (1 + std::fabs(expected[i])))) return false;
  return true;
}

TEST_CASE("each operator computes its function, element by element") {
  CHECK(Floats("Abs", {-1.5f, 0, 2}) == std::vector<float>{1.5f, 0, 2});
  CHECK(Floats("Ceil", {-1.5f, 1.2f, 2}) == std::vector<float>{-1, 2, 2});
  CHECK(Floats("Floor", {-1.5f, 1.2f, 2}) == std::vector<float>{-2, 1, 2});
  CHECK(Floats("Neg", {-4, 2}) == std::vector<float>{4, -2});
  CHECK(Floats("Reciprocal", {-4, 2}) == std::vector<float>{-0.25f, 0.5f});
  CHECK(Floats("Sign", {-3, 0, 0.1f}) == std::vector<float>{-1, 0, 1});
  CHECK(Floats("Sqrt", {0, 4, 2.25f}) == std::vector<float>{0, 2, 1.5f});
  CHECK(Near(Floats("Cos", {0, 1}), {1, 0.540302306f}));
  CHECK(Near(Floats("Sin", {0, 1}), {0, 0.841470985f}));
  CHECK(Near(Floats("Exp", {-1, 0, 1}), {0.367879441f, 1, 2.718281828f}));
  CHECK(Near(Floats("Log", {1, 10}), {0, 2.302585093f}));
  CHECK(Near(Floats("Erf", {-1, 0, 0.5f, 4}), {-0.842700793f, 0, 0.520499878f, 1}));
}

TEST_CASE("halves are rounded to the even neighbour") {
  CHECK(Floats("Round", {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.9f, -1.2f}) ==
        std::vector<float>{0, 2, 2, 0, -2, -2, 1, -1});
}

TEST_CASE("outside the domain the result is NaN or infinite") {
  CHECK(std::isnan(Floats("Log", {-1})[0]));
  CHECK(Floats("Log", {0})[0] == -INFINITY);
  CHECK(std::isnan(Floats("Sqrt", {-1})[0]));
  CHECK(Floats("Reciprocal", {0})[0] == INFINITY);
  CHECK(std::isnan(Floats("Sign", {NAN})[0]));
}

TEST_CASE("Abs, Neg and Sign take integers and wrap around at the smallest") {
  CHECK(Values<int32_t>("Abs", {-3, 3, INT32_MIN}) == std::vector<int32_t>{3, 3, INT32_MIN});
  CHECK(Values<int8_t>("Abs", {-3, -128}) == std::vector<int8_t>{3, -128});
  CHECK(Values<uint8_t>("Abs", {200}) == std::vector<uint8_t>{200});
  CHECK(Values<int64_t>("Neg", {5, INT64_MIN}) == std::vector<int64_t>{-5, INT64_MIN});
  CHECK(Values<int16_t>("Sign", {-7, 0, 7}) == std::vector<int16_t>{-1, 0, 1});
  CHECK(Values<uint64_t>("Sign", {0, UINT64_MAX}) == std::vector<uint64_t>{0, 1});
}

TEST_CASE("a byte of a bool that is neither 0 nor 1 is true") {
  Tensor x({3}, DType::kBool);
  const uint8_t bytes[] = {0, 1, 7};
  std::memcpy(x.raw_mutable_data(), bytes, 3);
  const Tensor y = Invoke("Not", {x})[0];
  CHECK(std::memcmp(y.raw_data(), "\1\0\0", 3) == 0);
}

TEST_CASE("a strided input is read along its strides") {
  const Tensor x = Tensor::From<float>({2, 2}, {1, 2, 3, 4}).Permute({1, 0});
  CHECK(Invoke("Neg", {x})[0].ToVector<float>() == std::vector<float>{-1, -3, -2, -4});
}

TEST_CASE("symbols are kept, and unsupported types are refused") {
  const OpSchema& schema = OpRegistry::Global().GetSchema("Exp");
  const OperatorDef def("Exp", {"x"}, {"y"});
  const auto out = schema.InferOutputs(def, {TensorInfo(DType::kFloat32, {Sym("N"), 3})});
  CHECK(out[0].shape == SymbolicShape{Sym("N"), 3});
  CHECK(out[0].dtype == DType::kFloat32);
  const Error error = ErrorOf([&] { schema.InferOutputs(def, {TensorInfo(DType::kInt64, {2})}); });
  CHECK(error.code() == ErrorCode::kTypeMismatch);
  CHECK(error.message() ==
        "input 0 'X' is int64[2], expected one of [float32, float64, float16, bfloat16]");
}

TEST_CASE("the operators and their gradients keep the promises of their schemas") {
  for (const char* op : {"Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Log", "Neg", "Not",
                         "Reciprocal", "Round", "Sign", "Sin", "Sqrt"})
    OPKIT_CHECK_OPERATOR(op);
  CHECK(HasGradient("Erf"));
}

}  // namespace
}  // namespace unary_test

// Where.
#include "opkit/ops/where.hpp"

#include <doctest/doctest.h>

#include "opkit/interop/doctest.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/ops/cast.hpp"
#include "opkit/ops/generators.hpp"
#include "support/error_of.hpp"

namespace where_test {
using namespace opkit;

namespace {

TEST_CASE("the condition chooses an element of either input") {
  const Tensor condition = Tensor::From<bool>({2, 2}, {true, false, true, true});
  const Tensor x = Tensor::From<float>({2, 2}, {1, 2, 3, 4}),
               y = Tensor::From<float>({2, 2}, {9, 8, 7, 6});
  CHECK(Invoke("Where", {condition, x, y})[0].ToVector<float>() == std::vector<float>{1, 8, 3, 4});
}

TEST_CASE("all three inputs are broadcast") {
  const Tensor condition = Tensor::From<bool>({2, 1}, {true, false});
  const Tensor x = Tensor::From<int64_t>({3}, {1, 2, 3}), y = Tensor::Scalar(int64_t{0});
  const Tensor out = Invoke("Where", {condition, x, y})[0];
  CHECK(out.shape() == Shape{2, 3});
  CHECK(out.ToVector<int64_t>() == std::vector<int64_t>{1, 2, 3, 0, 0, 0});
}

TEST_CASE("the error for different types names the types") {
  const Tensor condition = Tensor::Scalar(true), x = Tensor::Scalar(1.f), y = Tensor::Scalar(1.);
  CHECK(Contains(ErrorOf([&] {
                   Invoke("Where", {condition, x, y});
                 }).message(),
                 "float64[], expected dtype float32"));
  CHECK(ErrorOf([&] {
          Invoke("Where", {x, x, x});
        }).message() == "input 0 'condition' is float32[], expected one of [bool]");
}

TEST_CASE("the operator keeps the promises of its schema") {
  OPKIT_CHECK_OPERATOR("Where");
  CHECK(HasGradient("Where"));
  CheckOptions options;
  options.dtypes = {DType::kComplex64, DType::kComplex128};
  OPKIT_CHECK_OPERATOR("Where", options);
}

}  // namespace
}  // namespace where_test

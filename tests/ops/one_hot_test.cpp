// OneHot.
#include "opkit/ops/one_hot.hpp"

#include "data_movement.hpp"

namespace one_hot_test {
using namespace opkit_tests;

namespace {

const Tensor kOffOn = Tensor::From<float>({2}, {1, 5});

TEST_CASE("one place is on") {
  const Tensor y = Invoke("OneHot", {List({0, 2}), Tensor::Scalar<int64_t>(3), kOffOn})[0];
  CHECK(y.shape() == Shape{2, 3});
  CHECK(FloatsOf(y) == Floats{5, 1, 1, 1, 1, 5});
  CHECK(FloatsOf(Invoke("OneHot", {List({0, 2}), List({3}), kOffOn}, {{"axis", 0}})[0]) ==
        Floats{5, 1, 1, 1, 1, 5});
  CHECK(FloatsOf(Invoke("OneHot", {List({-1, 3, -4}), List({3}), kOffOn})[0]) ==
        Floats{1, 1, 5, 1, 1, 1, 1, 1, 1});
  const Tensor floats = Tensor::From<float>({1}, {1.9f});
  CHECK(FloatsOf(Invoke("OneHot", {floats, Tensor::Scalar(2.f), kOffOn})[0]) == Floats{1, 5});
  CHECK(FloatsOf(Invoke("OneHot", {Tensor::Scalar<uint8_t>(1), List({2}), kOffOn})[0]) ==
        Floats{1, 5});
  CHECK(FloatsOf(Invoke("OneHot", {Tensor::Scalar(UINT64_MAX), List({2}), kOffOn})[0]) ==
        Floats{1, 1});
}

TEST_CASE("the depth becomes an axis, and only one number of at least 0 is a depth") {
  const Known indices(DType::kInt64, {Sym("N"), 2});
  CHECK(Inferred("OneHot", {indices, List({7}), {DType::kInt8, {2}}}) == "int8[N, 2, 7]");
  CHECK(Inferred("OneHot", {indices, {DType::kInt64, {1}}, {2}}, {{"axis", 0}}) ==
        "float32[?, N, 2]");
  CHECK(Contains(Refused("OneHot", {indices, List({-1}), {2}}), "expected at least 0"));
  CHECK(Contains(Refused("OneHot", {indices, List({1, 2}), {2}}), "expected one element"));
  const Tensor deep = Tensor::From<int64_t>({1, 1}, {3});
  CHECK(Contains(Refused("OneHot", {indices, deep, {2}}),
                 "expected one element in a scalar or list"));
  CHECK(Contains(Refused("OneHot", {indices, List({1}), {3}}), "expected [2], the off and the on"));
  CHECK(Contains(Refused("OneHot", {indices, List({1}), {2}}, {{"axis", 3}}), "axis 3 is outside"));
  CHECK(Contains(ErrorOf([] {
                   Invoke("OneHot", {Tensor::Scalar(NAN), List({2}), kOffOn});
                 }).message(),
                 "OneHot: expected an integer, found nan"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("OneHot", {"i", "depth", "values"}, {"y"}),
            {List({1, 0, 2}), List({3}), kOffOn});
}

}  // namespace
}  // namespace one_hot_test

// Pad.
#include "opkit/ops/pad.hpp"

#include "data_movement.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/unary.hpp"

namespace pad_test {
using namespace opkit_tests;

namespace {

Floats Pad(int64_t n, const Ints& pads, const std::string& mode) {
  return FloatsOf(Invoke("Pad", {Counting({n}), List(pads)}, {{"mode", mode}})[0]);
}

TEST_CASE("each mode adds its own elements on each side") {
  CHECK(Pad(3, {2, 1}, "constant") == Floats{0, 0, 0, 1, 2, 0});
  CHECK(Pad(3, {2, 1}, "edge") == Floats{0, 0, 0, 1, 2, 2});
  CHECK(Pad(3, {2, 1}, "reflect") == Floats{2, 1, 0, 1, 2, 1});
  CHECK(Pad(3, {2, 1}, "wrap") == Floats{1, 2, 0, 1, 2, 0});
  // Further than the tensor reaches.
  CHECK(Pad(3, {5, 4}, "reflect") == Floats{1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2});
  CHECK(Pad(3, {4, 4}, "wrap") == Floats{2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0});
  CHECK(Pad(1, {2, 1}, "reflect") == Floats{0, 0, 0, 0});
}

TEST_CASE("negative pads take away, before anything is repeated") {
  CHECK(Pad(4, {-1, -2}, "constant") == Floats{1});
  CHECK(Pad(4, {-1, 2}, "constant") == Floats{1, 2, 3, 0, 0});
  CHECK(Pad(4, {-1, 1}, "wrap") == Floats{1, 2, 3, 1});
  CHECK(Pad(4, {2, -2}, "edge") == Floats{0, 0, 0, 1});
  CHECK(Pad(4, {-2, -2}, "constant") == Floats{});
  CHECK(Pad(2, {-3, 4}, "constant") == Floats{0, 0, 0});
}

TEST_CASE("only named axes are padded, with the constant, in any dtype") {
  const Tensor x = Counting({2, 2}), none;
  const Tensor y = Invoke("Pad", {x, List({1, 0}), Tensor::Scalar(9.f), List({-1})})[0];
  CHECK(y.shape() == Shape{2, 3});
  CHECK(FloatsOf(y) == Floats{9, 0, 1, 9, 2, 3});
  CHECK(FloatsOf(Invoke("Pad", {x, List({0, 1, 1, 0}), none, List({1, 0})},
                        {{"mode", "edge"}})[0]) == Floats{0, 1, 1, 0, 1, 1, 2, 3, 3});
  const Tensor bytes = Tensor::From<uint8_t>({2}, {7, 8});
  CHECK(Invoke("Pad", {bytes, List({1, 1}), Tensor::From<uint8_t>({1}, {5})})[0]
            .ToVector<uint8_t>() == std::vector<uint8_t>{5, 7, 8, 5});
  CHECK(FloatsOf(Invoke("Pad", {Counting({0, 2}), List({1, 0, 0, 1}), Tensor::Scalar(4.f)})[0]) ==
        Floats{4, 4, 4});
}

TEST_CASE("extents grow by constant pads, and are unknown otherwise") {
  CHECK(Inferred("Pad", {{Sym("N"), 4}, List({0, 1, 0, 2})}) == "float32[N, 7]");
  CHECK(Inferred("Pad", {{Sym("N"), 4}, List({1, 0, 0, 0})}) == "float32[?, 4]");
  CHECK(Inferred("Pad", {{Sym("N"), 4}, {DType::kInt64, {4}}}) == "float32[?, ?]");
  CHECK(Inferred("Pad", {{Dim::AtMost(5), 4}, List({1, 0, 2, 0})}) == "float32[<=8, 4]");
  CHECK(Inferred("Pad", {{Sym("N"), 4}, {DType::kInt64, {2}}, kLeftOut, List({1})}) ==
        "float32[N, ?]");
}

TEST_CASE("pads that do not fit the axes or the data are refused") {
  CHECK(Refused("Pad", {{4}, List({1})}) ==
        "Pad: 'pads' has 1 elements, expected 2, one before and one behind each of 1 axes");
  CHECK(Refused("Pad", {{4}, List({-3, -2})}) ==
        "Pad: an axis of extent 4 cannot have pads -3 and -2");
  CHECK(Contains(Refused("Pad", {{4}, List({INT64_MAX, 1})}), "cannot have pads"));
  CHECK(Contains(Refused("Pad", {{4, 4}, List({1, 1, 1, 1}), kLeftOut, List({0, -2})}),
                 "named twice"));
  CHECK(Contains(ErrorOf([] {
                   Pad(4, {1, 1}, "mirror");
                 }).message(),
                 "argument 'mode' of Pad is 'mirror', which is none of its values (known: "
                 "'constant', 'reflect', "
                 "'edge', 'wrap')"));
  CHECK(Contains(ErrorOf([] { Pad(0, {1, 1}, "edge"); }).message(), "has nothing to repeat"));
  CHECK(Contains(ErrorOf([] {
                   Invoke("Pad", {Counting({1}), List({1, 1}), Tensor::Scalar(1.)});
                 }).message(),
                 "expected one element of float32"));
}

TEST_CASE("the operator and its gradient keep the promises of its schema") {
  CheckNode(OperatorDef("Pad", {"x", "pads"}, {"y"}), {Counting({2, 3}), List({1, 0, 0, 2})});
  CheckNode(OperatorDef("Pad", {"x", "pads"}, {"y"}), {Counting({2, 3}), List({-1, 1, 1, -1})});
  CheckOptions options;
  options.compare.gradient = false;
  CHECK(CheckOperator(OperatorDef("Pad", {"x", "pads"}, {"y"}, {{"mode", "reflect"}}),
                      {Counting({2, 3}), List({1, 0, 0, 2})}, options)
            .ok());
  CHECK(HasGradient("Pad"));
}

}  // namespace
}  // namespace pad_test

// Det.
#include "opkit/ops/math/det.hpp"

#include "../data_movement.hpp"

namespace det_test {
using namespace opkit_tests;

namespace {

Floats Det(const Shape& shape, const Floats& x) {
  return FloatsOf(Invoke("Det", {Tensor::From<float>(shape, x)})[0]);
}

TEST_CASE("determinants of matrices") {
  CHECK(Det({2, 2}, {1, 2, 3, 4}) == Floats{-2});
  CHECK(Det({3, 3}, {2, 0, 1, 1, 3, 2, 1, 1, 1}) == Floats{0});
  CHECK(Det({3, 3}, {0, 0, 1, 0, 2, 0, 3, 0, 0}) == Floats{-6});
  CHECK(Det({2, 1, 1}, {7, -8}) == Floats{7, -8});
  CHECK(Det({2, 0, 0}, {}) == Floats{1, 1});
  CHECK(std::isnan(Det({2, 2}, {NAN, 1, 1, 1})[0]));
}

TEST_CASE("the largest pivot keeps small numbers apart") {
  // Without the exchange of rows, 1e-20 as the pivot would lose the other elements.
  CHECK(Det({2, 2}, {1e-20f, 1, 1, 1})[0] == doctest::Approx(-1));
}

TEST_CASE("shapes are inferred, and matrices that are not square refused") {
  CHECK(Inferred("Det", {{Sym("N"), 3, 3}}) == "float32[N]");
  CHECK(Inferred("Det", {{3, 3}}) == "float32[]");
  CHECK(Contains(Refused("Det", {{2, 3}}), "Det: X has shape [2, 3], expected square matrices"));
  CHECK(Contains(Refused("Det", {{3}}), "expected square matrices"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("Det", {"x"}, {"y"}), {RandomTensor({2, 3, 3}, DType::kFloat32)});
}

TEST_CASE("the gradient is made of cofactors, of singular matrices too") {
  const Tensor x = Tensor::From<float>({2, 2, 2}, {1, 2, 2, 4, 0, 0, 0, 0});
  const Tensor dy = Tensor::From<float>({2}, {2, 1});
  CHECK(Invoke("DetGradient", {x, dy})[0].ToVector<float>() == Floats{8, -4, -4, 2, 0, 0, 0, 0});
  CHECK(Invoke("DetGradient", {Counting({1, 1}), Tensor::Scalar(3.f)})[0].ToVector<float>() ==
        Floats{3});
  CHECK(HasGradient("Det"));
}

}  // namespace
}  // namespace det_test

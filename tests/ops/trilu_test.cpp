// Trilu.
#include "opkit/ops/trilu.hpp"

#include "data_movement.hpp"

namespace trilu_test {
using namespace opkit_tests;

namespace {

Floats Trilu(const Shape& shape, int64_t upper, int64_t k) {
  return FloatsOf(Invoke("Trilu", {Counting(shape), Tensor::Scalar(k)}, {{"upper", upper}})[0]);
}

TEST_CASE("the triangle of k stays and the rest is 0") {
  CHECK(Trilu({2, 3}, 1, 0) == Floats{0, 1, 2, 0, 4, 5});
  CHECK(Trilu({2, 3}, 0, 0) == Floats{0, 0, 0, 3, 4, 0});
  CHECK(Trilu({2, 3}, 1, 1) == Floats{0, 1, 2, 0, 0, 5});
  CHECK(Trilu({2, 3}, 0, -1) == Floats{0, 0, 0, 3, 0, 0});
  CHECK(Trilu({2, 3}, 1, -9) == Floats{0, 1, 2, 3, 4, 5});
  CHECK(Trilu({2, 3}, 1, INT64_MAX) == Floats{0, 0, 0, 0, 0, 0});
  CHECK(Trilu({2, 3}, 0, INT64_MIN) == Floats{0, 0, 0, 0, 0, 0});
  CHECK(Trilu({2, 2, 2}, 1, 0) == Floats{0, 1, 0, 3, 4, 5, 0, 7});
  CHECK(Trilu({0, 3}, 1, 0) == Floats{});
  CHECK(Trilu({3, 0}, 1, 0) == Floats{});
  CHECK(FloatsOf(Invoke("Trilu", {Counting({2, 2})})[0]) == Floats{0, 1, 0, 3});
}

TEST_CASE("the shape stays, and fewer than two axes are refused") {
  CHECK(Inferred("Trilu", {{Sym("N"), 3}}) == "float32[N, 3]");
  CHECK(Contains(Refused("Trilu", {{3}}), "expected rank 2 or more"));
  CHECK(Contains(ErrorOf([] {
                   Invoke("Trilu", {Counting({2, 2}), List({1, 2})});
                 }).message(),
                 "expected one element"));
}

TEST_CASE("the operator and its gradient keep the promises of its schema, in place too") {
  CheckNode(OperatorDef("Trilu", {"x", "k"}, {"y"}),
            {Counting({3, 4}), Tensor::Scalar<int64_t>(1)});
  CheckNode(OperatorDef("Trilu", {"x"}, {"y"}, {{"upper", 0}}), {Counting({3, 2})});
  CHECK(HasGradient("Trilu"));
}

}  // namespace
}  // namespace trilu_test

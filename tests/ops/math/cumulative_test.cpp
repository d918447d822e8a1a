// CumSum and CumProd.
#include "opkit/ops/math/cumulative.hpp"

#include "../data_movement.hpp"

namespace cumulative_test {
using namespace opkit_tests;

namespace {

Floats Run(const char* op, const Tensor& x, int64_t axis, int exclusive = 0, int reverse = 0) {
  return FloatsOf(
      Invoke(op, {x, Tensor::Scalar(axis)}, {{"exclusive", exclusive}, {"reverse", reverse}})[0]);
}

TEST_CASE("sums and products run along an axis, either way, with or without the element") {
  const Tensor x = Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(Run("CumSum", x, 1) == Floats{1, 3, 6, 4, 9, 15});
  CHECK(Run("CumSum", x, -2) == Floats{1, 2, 3, 5, 7, 9});
  CHECK(Run("CumSum", x, 1, 1) == Floats{0, 1, 3, 0, 4, 9});
  CHECK(Run("CumSum", x, 1, 0, 1) == Floats{6, 5, 3, 15, 11, 6});
  CHECK(Run("CumSum", x, 1, 1, 1) == Floats{5, 3, 0, 11, 6, 0});
  CHECK(Run("CumProd", x, 1) == Floats{1, 2, 6, 4, 20, 120});
  CHECK(Run("CumProd", x, 1, 1, 1) == Floats{6, 3, 1, 30, 6, 1});
  CHECK(Run("CumSum", Counting({2, 0}), 1) == Floats{});
}

TEST_CASE("integers wrap around, and 16 bits are summed in float") {
  const Tensor x = Tensor::From<int32_t>({2}, {INT32_MAX, 1});
  CHECK(Invoke("CumSum", {x, List({0})})[0].ToVector<int32_t>() ==
        std::vector<int32_t>{INT32_MAX, INT32_MIN});
  const float16 small(1.f / 1024);
  const Tensor halves = Tensor::From<float16>({3}, {float16(2.f), small, small});
  CHECK(static_cast<float>(Invoke("CumSum", {halves, List({0})})[0].ToVector<float16>()[2]) ==
        2 + 2.f / 1024);
}

TEST_CASE("an axis that is no axis is refused") {
  CHECK(Inferred("CumSum", {{Sym("N"), 3}, List({1})}) == "float32[N, 3]");
  CHECK(Contains(Refused("CumSum", {{2, 3}, List({2})}), "CumSum: axis 2 is outside"));
  CHECK(Contains(Refused("CumProd", {{2, 3}, List({0, 1})}), "expected one integer"));
}

TEST_CASE("the operators and the gradient keep the promises of their schemas, in place too") {
  for (const char* op : {"CumSum", "CumProd"})
    for (const int reverse : {0, 1})
      CheckNode(OperatorDef(op, {"x", "a"}, {"y"}, {{"exclusive", 1}, {"reverse", reverse}}),
                {Counting({2, 3, 2}), List({1})});
  CHECK(HasGradient("CumSum"));
}

TEST_CASE("the gradient of CumProd has no trouble with zeros") {
  const Tensor x = Tensor::From<double>({2, 5}, {2, 0, -3, 0.5, 1, 1.5, -2, 0, 3, 0});
  for (const int exclusive : {0, 1})
    for (const int reverse : {0, 1})
      CheckNode(OperatorDef("CumProd", {"x", "a"}, {"y"},
                            {{"exclusive", exclusive}, {"reverse", reverse}}),
                {x, List({1})});
  CHECK(HasGradient("CumProd"));
}

}  // namespace
}  // namespace cumulative_test

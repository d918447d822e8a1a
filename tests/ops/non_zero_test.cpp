// NonZero.
#include "opkit/ops/non_zero.hpp"

#include "data_movement.hpp"

namespace non_zero_test {
using namespace opkit_tests;

namespace {

TEST_CASE("one column for each element that is not zero") {
  const Tensor x = Tensor::From<float>({2, 2}, {1, 0, -0.f, NAN});
  const Tensor y = Invoke("NonZero", {x})[0];
  CHECK(y.shape() == Shape{2, 2});
  CHECK(y.ToVector<int64_t>() == Ints{0, 1, 0, 1});
  CHECK(Invoke("NonZero", {Tensor::From<bool>({3}, {true, false, true})})[0].ToVector<int64_t>() ==
        Ints{0, 2});
  CHECK(Invoke("NonZero", {Counted({0, 3})})[0].shape() == Shape{2, 0});
  CHECK(Invoke("NonZero", {Tensor::Scalar(0.f)})[0].shape() == Shape{1, 0});
  CHECK(Invoke("NonZero", {Tensor::Scalar(2.f)})[0].ToVector<int64_t>() == Ints{0});
}

TEST_CASE("inference, and that it is what it claims to be") {
  CHECK(Inferred("NonZero", {{Sym("N"), 3}}) == "int64[2, ?]");
  CHECK(Inferred("NonZero", {kNoRank}) == "int64[?, ?]");
  CheckNode(OperatorDef("NonZero", {"x"}, {"y"}), {Counted({2, 3})});
}

}  // namespace
}  // namespace non_zero_test

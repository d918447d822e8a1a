// Lists of integers that inputs give.
#include "opkit/ops/support/integer_inputs.hpp"

#include "ops/data_movement.hpp"

namespace integer_inputs_test {
using namespace opkit_tests;

namespace {

TEST_CASE("a list of int64 or int32, or one number") {
  CHECK(IntegerList(List({3, -1}), "axes") == Dims{3, -1});
  CHECK(IntegerList(Tensor::From<int32_t>({2}, {3, -1}), "axes") == Dims{3, -1});
  CHECK(IntegerList(Tensor::Scalar<int64_t>(4), "axes") == Dims{4});
  CHECK(IntegerList(List({}), "axes").empty());
  const Tensor strided(Counting({2, 2}, DType::kInt64).storage(), 0, Shape{2}, DType::kInt64, {2});
  CHECK(IntegerList(strided, "axes") == Dims{0, 2});
  CHECK(ErrorOf([] { IntegerList(Counting({2}), "axes"); }).message() ==
        "axes must be int64 or int32, found float32[2] on cpu");
  CHECK(ErrorOf([] {
          IntegerList(Tensor(Shape{1, 1}, DType::kInt64), "axes");
        }).message() == "axes must be a list of integers, found int64[1, 1] on cpu");
}

TEST_CASE("the integers of a tensor are int64 or int32") {
  CHECK(IntegersOf(List({3, -1})) == Ints{3, -1});
  CHECK(IntegersOf(Tensor::From<int32_t>({2}, {3, -1})) == Ints{3, -1});
  CHECK(ErrorOf([] { IntegersOf(Counting({2})); }).message() ==
        "expected int64 or int32 elements, found float32[2] on cpu");
}

TEST_CASE("a rank that no tensor has is refused") {
  CHECK(ShapeOfRank(2).rank() == 2);
  CHECK(ErrorOf([] { ShapeOfRank(-1); }).message() == "rank -1 is not between 0 and 1024");
  CHECK_THROWS_AS(ShapeOfRank(int64_t{1} << 40), Error);
}

}  // namespace
}  // namespace integer_inputs_test

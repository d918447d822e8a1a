// Transpose.
#include "opkit/ops/transpose.hpp"

#include "data_movement.hpp"

namespace transpose_test {
using namespace opkit_tests;

namespace {

TEST_CASE("elements follow their axes, which are reversed without perm") {
  const Tensor x = Counting({2, 3});
  CHECK(FloatsOf(Invoke("Transpose", {x})[0]) == Floats{0, 3, 1, 4, 2, 5});
  const Tensor y = Invoke("Transpose", {Counting({2, 1, 3})}, {{"perm", {2, 0, 1}}})[0];
  CHECK(y.shape() == Shape{3, 2, 1});
  CHECK(FloatsOf(y) == Floats{0, 3, 1, 4, 2, 5});
  CHECK(FloatsOf(Invoke("Transpose", {x}, {{"perm", {0, 1}}})[0]) == FloatsOf(x));
  CHECK(Invoke("Transpose", {Counting({})})[0].shape() == Shape{});
  CHECK(Invoke("Transpose", {Counting({0, 3})})[0].shape() == Shape{3, 0});
}

TEST_CASE("any order of any dtype is the view of that order") {
  const uint64_t seed = 30;
  CAPTURE(seed);
  detail::CheckRandom random(seed);
  for (int round = 0; round < 200; ++round) {
    const int rank = 1 + static_cast<int>(random.Next() % 5);
    Ints extents, perm;
    for (int i = 0; i < rank; ++i) {
      extents.push_back(1 + static_cast<int64_t>(random.Next() % 9));
      perm.push_back(i);
    }
    for (size_t i = perm.size(); i > 1; --i) std::swap(perm[i - 1], perm[random.Next() % i]);
    const DType dtypes[] = {DType::kUInt8, DType::kInt16, DType::kFloat32, DType::kFloat64};
    const Tensor x = Counting(Shape(extents), dtypes[random.Next() % 4]);
    const Tensor expected = x.Permute(Dims(perm)).Contiguous();
    const Tensor y = Invoke("Transpose", {x}, {{"perm", perm}})[0];
    CAPTURE(ToString(x));
    CAPTURE(ToString(Dims(perm)));
    CHECK(y.shape() == expected.shape());
    CHECK(detail::SameBytes(y, expected));
    // And of a view, which is read where it lies.
    const Tensor view = Invoke("Transpose", {x.Permute(Dims(perm))}, {{"perm", perm}})[0];
    CHECK(detail::SameBytes(view,
                            x.Permute(Dims(perm)).Contiguous().Permute(Dims(perm)).Contiguous()));
  }
}

TEST_CASE("packed elements follow their axes, also an odd number of them") {
  for (const DType dtype :
       {DType::kInt2, DType::kUInt2, DType::kInt4, DType::kUInt4, DType::kFloat4E2M1}) {
    CAPTURE(dtype);
    const Tensor x = RandomTensor(Shape{3, 5, 1}, dtype);
    const Tensor y = Invoke("Transpose", {x})[0];
    CHECK(y.shape() == Shape{1, 5, 3});
    CHECK(y.dtype() == dtype);
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t k = 0; k < 5; ++k)
        CHECK(detail::GetNumber(y, 3 * k + i) == detail::GetNumber(x, 5 * i + k));
    CHECK(detail::SameBytes(Invoke("Transpose", {y})[0], x));  // the unused bits are 0
  }
}

TEST_CASE("one operator serves inputs of several ranks") {
  ResolvedOperator transpose("Transpose", 1);
  CHECK(transpose({Counting({2, 3})})[0].shape() == Shape{3, 2});
  CHECK(transpose({Counting({2, 3, 4})})[0].shape() == Shape{4, 3, 2});
  CHECK(transpose({Counting({2, 3})})[0].shape() == Shape{3, 2});
}

TEST_CASE("extents and symbols are permuted, and a perm that is none is refused") {
  CHECK(Inferred("Transpose", {{Sym("N"), Dim(), 4}}, {{"perm", {2, 0, 1}}}) == "float32[4, N, ?]");
  CHECK(Inferred("Transpose", {{Sym("N"), 4}}) == "float32[4, N]");
  CHECK(Inferred("Transpose", {kNoRank}, {{"perm", {1, 0}}}) == "float32[?, ?]");
  CHECK(Inferred("Transpose", {kNoRank}) == "float32[rank unknown]");
  CHECK(Refused("Transpose", {{2, 3}}, {{"perm", {0}}}) ==
        "Transpose: perm [0] must name each axis once, and the input has rank 2");
  CHECK(Refused("Transpose", {{2, 3}}, {{"perm", {1, 1}}}) ==
        "Transpose: axis 1 is named twice in [1, 1]");
  CHECK(Refused("Transpose", {{2, 3}}, {{"perm", {0, 2}}}) ==
        "Transpose: axis 2 is outside a tensor of rank 2, expected -2 to 1");
}

TEST_CASE("the operator and its gradient keep the promises of its schema") {
  CheckNode(OperatorDef("Transpose", {"x"}, {"y"}), {Counting({2, 3, 4})});
  CheckNode(OperatorDef("Transpose", {"x"}, {"y"}, {{"perm", {1, 2, 0}}}), {Counting({2, 3, 4})});
  CHECK(HasGradient("Transpose"));
}

}  // namespace
}  // namespace transpose_test

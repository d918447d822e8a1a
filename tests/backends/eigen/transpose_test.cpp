// Transpose of the "eigen" backend: to the bit the same as the plain operator.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "opkit/core/packed.hpp"
#include "opkit/op/check/check_data.hpp"
#include "support/check_node.hpp"
#include "support/compare_backends.hpp"
#include "support/lists.hpp"

namespace transpose_test {
using namespace opkit;

namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kInt64, DType::kBool, DType::kFloat16};

Tensor RandomOf(DType dtype, const Shape& shape, uint64_t seed) {
  Tensor out(shape, dtype);
  std::mt19937_64 engine(seed);
  for (int64_t i = 0; i < out.numel(); ++i)
    detail::SetNumber(out, i,
                      static_cast<double>(engine() % (dtype == DType::kBool ? 2 : 2000)) - 1);
  return out;
}

void Compare(const Tensor& x, const Arguments& args) {
  INFO(ToString(x), ", perm ", args.Has("perm") ? StrCat(args.Get<Ints>("perm")) : "");
  const Tensor expected = Invoke("Transpose", {x}, args, {.backends = "reference"})[0];
  static ThreadPool pools[2] = {ThreadPool(1), ThreadPool(3)};
  for (ThreadPool& pool : pools) {
    const PoolScope scope(pool);
    const Tensor found = Invoke("Transpose", {x}, args, {.backends = "eigen"})[0];
    CHECK(found.shape() == expected.shape());
    CHECK(found.dtype() == expected.dtype());
    CHECK(detail::SameBytes(found, expected));
  }
}

TEST_CASE("The kernel takes every type and every order of the axes") {
  for (const DType dtype : kDTypes) {
    CAPTURE(ToString(dtype));
    const Tensor x = RandomOf(dtype, {3, 5, 4, 7}, 1);
    CHECK(IsTakenBy("eigen", "Transpose", {x}, {}, 1));
    Ints perm = {0, 1, 2, 3};
    do {
      CHECK(IsTakenBy("eigen", "Transpose", {x}, {{"perm", perm}}, 1));
      Compare(x, {{"perm", perm}});
    } while (std::next_permutation(perm.begin(), perm.end()));
  }
}

TEST_CASE("Ranks from 0 to 6, and no elements") {
  for (const DType dtype : kDTypes)
    for (const Shape& shape :
         {Shape{}, Shape{1}, Shape{9}, Shape{5, 7}, Shape{1, 8}, Shape{6, 1, 4}, Shape{2, 3, 1, 5},
          Shape{2, 3, 2, 4, 3}, Shape{2, 3, 2, 3, 2, 3}, Shape{0}, Shape{0, 3}, Shape{4, 0, 2},
          Shape{0, 0}})
      Compare(RandomOf(dtype, shape, 2), {});
}

TEST_CASE("Sizes that are cut into tiles and shared by threads") {
  for (const DType dtype : kDTypes) {
    Compare(RandomOf(dtype, {513, 301}, 3), {});
    Compare(RandomOf(dtype, {3, 16'001}, 4), {});
    Compare(RandomOf(dtype, {16'001, 3}, 5), {});
    Compare(RandomOf(dtype, {2, 3, 90, 70}, 6), {{"perm", {0, 2, 3, 1}}});
    Compare(RandomOf(dtype, {2, 90, 70, 3}, 7), {{"perm", {0, 3, 1, 2}}});
    Compare(RandomOf(dtype, {4, 50, 8, 64}, 8), {{"perm", {0, 2, 1, 3}}});
  }
}

TEST_CASE("Views are read where they lie") {
  for (const DType dtype : kDTypes) {
    const Tensor x = RandomOf(dtype, {6, 9, 11}, 9);
    for (const Tensor& view : {x.Permute({2, 0, 1}), x.Slice(1, 2, 7), x.Slice(2, 3, 10),
                               x.Slice(0, 1, 5).Permute({1, 2, 0}), x.Slice(2, 4, 4)}) {
      Ints perm = {0, 1, 2};
      do Compare(view, {{"perm", perm}});
      while (std::next_permutation(perm.begin(), perm.end()));
    }
  }
}

TEST_CASE("Strings and packed elements are moved, too") {
  const Tensor words =
      Tensor::From<std::string>({2, 3}, {"a", "b", "c", "d", "e", "a long string"});
  const Tensor found = Invoke("Transpose", {words}, {}, {.backends = "eigen"})[0];
  CHECK(found.shape() == Shape{3, 2});
  CHECK(found.ToVector<std::string>() ==
        std::vector<std::string>{"a", "d", "b", "e", "c", "a long string"});
  Tensor codes(Shape{3, 5}, DType::kInt4);
  for (int64_t i = 0; i < codes.numel(); ++i)
    SetPackedCode(codes.raw_mutable_data(), 4, i, static_cast<uint8_t>(i));
  Compare(codes, {});
}

TEST_CASE("One operator serves inputs of several ranks") {
  ResolvedOperator transpose("Transpose", 1, {}, {.backends = "eigen"});
  for (const Shape& shape : {Shape{2, 3}, Shape{2, 3, 4}, Shape{3, 2}}) {
    const Tensor x = RandomOf(DType::kFloat32, shape, 10);
    const Tensor expected = Invoke("Transpose", {x}, {}, {.backends = "reference"})[0];
    const Tensor found = transpose({x})[0];
    CHECK(found.shape() == expected.shape());
    CHECK(detail::SameBytes(found, expected));
  }
}

TEST_CASE("Transpose keeps the promises of its schema on every backend") {
  CheckNode(OperatorDef("Transpose", {"x"}, {"y"}, {{"perm", {1, 2, 0}}}),
            {RandomOf(DType::kFloat32, {3, 5, 40}, 11)});
}

}  // namespace
}  // namespace transpose_test

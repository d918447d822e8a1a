// Col2Im.
#include "opkit/ops/vision/col2im.hpp"

#include "../data_movement.hpp"

namespace col2im_test {
using namespace opkit_tests;

namespace {

Floats Image(const Tensor& x, const Ints& image, const Ints& block, Arguments args = {}) {
  return FloatsOf(Invoke("Col2Im", {x, List(image), List(block)}, std::move(args))[0]);
}

TEST_CASE("blocks are added where they overlap") {
  // Two blocks of 2 in a row of 3: the columns (1, 2) and (10, 20).
  CHECK(Image(Tensor::From<float>({1, 2, 2}, {1, 10, 2, 20}), {3}, {2}) == Floats{1, 12, 20});
  const Tensor ones = Tensor::From<float>({1, 4, 4}, Floats(16, 1));
  CHECK(Image(ones, {3, 3}, {2, 2}) == Floats{1, 2, 1, 2, 4, 2, 1, 2, 1});
}

TEST_CASE("strides, dilations and pads move the blocks") {
  const Tensor x = Tensor::From<float>({1, 2, 2}, {1, 10, 2, 20});
  CHECK(Image(x, {5}, {2}, {{"strides", {3}}}) == Floats{1, 2, 0, 10, 20});
  CHECK(Image(x, {4}, {2}, {{"dilations", {2}}}) == Floats{1, 10, 2, 20});
  CHECK(Image(x, {2}, {2}, {{"pads", {1, 0}}}) == Floats{12, 20});
}

TEST_CASE("batches and channels are apart, and integers wrap around") {
  const Tensor x = Invoke("Col2Im", {Counting({2, 4, 1}), List({2}), List({2})})[0];
  CHECK(x.shape() == Shape{2, 2, 2});
  CHECK(FloatsOf(x) == Floats{0, 1, 2, 3, 4, 5, 6, 7});
  const Tensor large = Tensor::From<int8_t>({1, 2, 2}, {100, 100, 100, 100});
  CHECK(Invoke("Col2Im", {large, List({3}), List({2})})[0].ToVector<int8_t>() ==
        std::vector<int8_t>{100, -56, 100});
}

TEST_CASE("shapes are inferred, and wrong ones refused") {
  CHECK(Inferred("Col2Im", {{Sym("N"), 8, 4}, List({3, 3}), List({2, 2})}) ==
        "float32[N, 2, 3, 3]");
  CHECK(Inferred("Col2Im", {{1, 8, 4}, List({3, 3}), {DType::kInt64, {2}}}) ==
        "float32[1, ?, 3, 3]");
  CHECK(Contains(Refused("Col2Im", {{1, 8, 5}, List({3, 3}), List({2, 2})}),
                 "expected [N, a multiple of 4, 4]"));
  CHECK(Contains(Refused("Col2Im", {{1, 7, 4}, List({3, 3}), List({2, 2})}), "a multiple of 4"));
  CHECK(Contains(Refused("Col2Im", {{1, 8, 4}, List({3, 3}), List({2})}), "lists of one length"));
  CHECK(Contains(Refused("Col2Im", {{1, 8, 4}, List({3, 1}), List({2, 2})}), "does not fit"));
  CHECK(Contains(Refused("Col2Im", {{1, 8, 4}, List({3, 3}), List({2, 0})}), "does not fit"));
  CHECK(Contains(Refused("Col2Im", {{1, 8}, List({3, 3}), List({2, 2})}), "elements of a block"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("Col2Im", {"x", "i", "b"}, {"y"}, {{"pads", {0, 1, 0, 0}}}),
            {Counting({2, 4, 6}), List({3, 3}), List({2, 2})});
  CHECK(HasGradient("Col2Im"));
}

}  // namespace
}  // namespace col2im_test

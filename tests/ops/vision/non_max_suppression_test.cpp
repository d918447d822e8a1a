// NonMaxSuppression.
#include "opkit/ops/vision/non_max_suppression.hpp"

#include "../data_movement.hpp"

namespace non_max_suppression_test {
using namespace opkit_tests;

namespace {

// Three boxes of [0, 2] along y: box 1 shares a third of the union with box 0, box 2 is apart.
const Tensor kBoxes = Tensor::From<float>({1, 3, 4}, {0, 0, 2, 2, 2, 3, 0, 1, 0, 5, 2, 6});
const Tensor kScores = Tensor::From<float>({1, 1, 3}, {0.5f, 0.75f, 0.25f});

// The selected boxes, without batch and class.
Ints Run(int64_t most, float limit, std::optional<float> least = {}, Arguments args = {},
         const Tensor& boxes = kBoxes, const Tensor& scores = kScores) {
  std::vector<Tensor> inputs{boxes, scores, Tensor::Scalar<int64_t>(most), Tensor::Scalar(limit)};
  if (least) inputs.push_back(Tensor::Scalar(*least));
  const Tensor y = Invoke("NonMaxSuppression", inputs, std::move(args))[0];
  CHECK(y.dim(1) == 3);
  Ints all = y.ToVector<int64_t>(), found;
  for (size_t i = 2; i < all.size(); i += 3) found.push_back(all[i]);
  return found;
}

TEST_CASE("boxes are selected by their scores, unless a better one overlaps them too much") {
  CHECK(Run(3, 0.3f) == Ints{1, 2});
  CHECK(Run(3, 0.4f) == Ints{1, 0, 2});
  CHECK(Run(2, 0.4f) == Ints{1, 0});
  CHECK(Run(0, 0.4f) == Ints{});
  CHECK(Run(3, 0.4f, 0.25f) == Ints{1, 0});
  // The threshold itself does not suppress: half of the union is common here.
  const Tensor halves = Tensor::From<float>({1, 2, 4}, {0, 0, 1, 2, 0, 0, 1, 1});
  const Tensor equal = Tensor::From<float>({1, 1, 2}, {1, 1});
  CHECK(Run(3, 0.5f, {}, {}, halves, equal) == Ints{0, 1});
  CHECK(Run(3, 0.49f, {}, {}, halves, equal) == Ints{0});
}

TEST_CASE("boxes may be given by their centers, and classes do not suppress one another") {
  const Tensor boxes = Tensor::From<float>({1, 2, 4}, {1, 1, 2, 2, 2, 1, 2, 2});
  const Tensor scores = Tensor::From<float>({1, 2, 2}, {1, 2, 2, 1});
  const Tensor y =
      Invoke("NonMaxSuppression", {boxes, scores, Tensor::Scalar<int64_t>(2), Tensor::Scalar(0.3f)},
             {{"center_point_box", 1}})[0];
  CHECK(y.ToVector<int64_t>() == Ints{0, 0, 1, 0, 1, 0});
}

TEST_CASE("the number of boxes is unknown before the run, and wrong inputs are refused") {
  CHECK(Inferred("NonMaxSuppression", {{Sym("N"), 7, 4}, {Sym("N"), 2, 7}}) == "int64[?, 3]");
  CHECK(Contains(Refused("NonMaxSuppression", {{1, 7, 5}, {1, 2, 7}}), "[batches, boxes, 4]"));
  CHECK(Contains(Refused("NonMaxSuppression", {{1, 7, 4}, {1, 2, 8}}), "[batches, boxes, 4]"));
  CHECK(Contains(Refused("NonMaxSuppression", {{1, 7, 4}, {1, 2, 7}}, {{"center_point_box", 2}}),
                 "0 or 1"));
  CHECK(Contains(ErrorOf([] {
                   Invoke("NonMaxSuppression", {kBoxes, kScores, List({1, 2})});
                 }).message(),
                 "expected one element"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("NonMaxSuppression", {"b", "s", "m"}, {"y"}),
            {kBoxes, kScores, Tensor::Scalar<int64_t>(2)});
}

}  // namespace
}  // namespace non_max_suppression_test

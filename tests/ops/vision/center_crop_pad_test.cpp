// CenterCropPad.
#include "opkit/ops/vision/center_crop_pad.hpp"

#include "../data_movement.hpp"

namespace center_crop_pad_test {
using namespace opkit_tests;

namespace {

Floats Run(const Tensor& x, const Ints& shape, Arguments args = {}) {
  return FloatsOf(Invoke("CenterCropPad", {x, List(shape)}, std::move(args))[0]);
}

TEST_CASE("axes are cut and padded around their middle; the odd element is at the end") {
  CHECK(Run(Counting({5}), {2}) == Floats{1, 2});
  CHECK(Run(Counting({5}), {3}) == Floats{1, 2, 3});
  CHECK(Run(Counting({2}), {5}) == Floats{0, 0, 1, 0, 0});
  CHECK(Run(Counting({2, 3}), {3, 1}) == Floats{1, 4, 0});
  CHECK(Run(Counting({2, 3}), {4}, {{"axes", Ints{-2}}}) ==
        Floats{0, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0});
  CHECK(Run(Counting({2, 0}), {1, 2}) == Floats{0, 0});
  CHECK(Run(Counting({2, 3}), {2, 0}) == Floats{});
}

TEST_CASE("shapes are inferred, and wrong ones refused") {
  CHECK(Inferred("CenterCropPad", {{Sym("N"), 3}, List({7})}, {{"axes", Ints{1}}}) ==
        "float32[N, 7]");
  CHECK(Inferred("CenterCropPad", {{4, 3}, {DType::kInt64, {1}}}, {{"axes", Ints{1}}}) ==
        "float32[4, ?]");
  CHECK(Contains(Refused("CenterCropPad", {{4, 3}, List({7})}), "each of 2 axes"));
  CHECK(Contains(Refused("CenterCropPad", {{4}, List({-1})}), "negative extent"));
  CHECK(Contains(Refused("CenterCropPad", {{4}, List({1})}, {{"axes", Ints{1}}}), "axis 1 is"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("CenterCropPad", {"x", "s"}, {"y"}), {Counting({2, 5}), List({3, 2})});
  CheckNode(OperatorDef("CenterCropPad", {"x", "s"}, {"y"}, {{"axes", Ints{-1, 0}}}),
            {Counting({2, 2, 5}), List({8, 3})});
  CHECK(HasGradient("CenterCropPad"));
}

}  // namespace
}  // namespace center_crop_pad_test

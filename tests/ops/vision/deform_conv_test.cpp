// DeformConv.
#include "opkit/ops/vision/deform_conv.hpp"

#include "../data_movement.hpp"

namespace deform_conv_test {
using namespace opkit_tests;

namespace {

Tensor Of(const Shape& shape, float value) {
  return Tensor::From<float>(shape, Floats(static_cast<size_t>(shape.numel()), value));
}
Floats Run(const std::vector<Tensor>& inputs, Arguments args = {}) {
  return FloatsOf(Invoke("DeformConv", inputs, std::move(args))[0]);
}

TEST_CASE("without offsets it is a convolution") {
  const Tensor x = Counting({1, 1, 3, 3});
  CHECK(Run({x, Of({1, 1, 2, 2}, 1), Of({1, 8, 2, 2}, 0)}) == Floats{8, 12, 20, 24});
  CHECK(Run({x, Of({1, 1, 2, 2}, 1), Of({1, 8, 2, 2}, 0), Of({1}, 0.5f)}) ==
        Floats{8.5f, 12.5f, 20.5f, 24.5f});
  CHECK(Run({x, Of({1, 1, 2, 2}, 1), Of({1, 8, 1, 1}, 0)}, {{"dilations", {2, 2}}}) == Floats{16});
  CHECK(Run({x, Of({1, 1, 1, 1}, 1), Of({1, 2, 2, 2}, 0)}, {{"strides", {2, 2}}}) ==
        Floats{0, 2, 6, 8});
}

TEST_CASE("offsets move each element of a window along each axis, and the mask scales it") {
  const Tensor x = Counting({1, 1, 3, 3});
  // One element at the pixel (0, 0), moved down by 1 and right by 0.5.
  const Tensor offset = Tensor::From<float>({1, 2, 1, 1}, {1, 0.5f});
  const Arguments one = {{"strides", {3, 3}}};
  CHECK(Run({x, Of({1, 1, 1, 1}, 2), offset}, one) == Floats{7});
  CHECK(FloatsOf(Invoke("DeformConv",
                        {x, Of({1, 1, 1, 1}, 2), offset, Of({1}, 1), Of({1, 1, 1, 1}, 0.5f)},
                        one)[0]) == Floats{4.5f});
  // Half outside the image, and far outside.
  CHECK(
      Run({Of({1, 1, 3, 3}, 4), Of({1, 1, 1, 1}, 1), Tensor::From<float>({1, 2, 1, 1}, {-0.5f, 0})},
          one) == Floats{2});
  CHECK(Run({x, Of({1, 1, 1, 1}, 1), Tensor::From<float>({1, 2, 1, 1}, {0, 99})}, one) ==
        Floats{0});
}

TEST_CASE("groups of channels have their own weights, and groups of offsets their own offsets") {
  const Tensor x = Counting({1, 2, 1, 2});  // channel 0: 0, 1; channel 1: 2, 3
  const Tensor w = Tensor::From<float>({2, 1, 1, 1}, {1, 10});
  CHECK(Run({x, w, Of({1, 2, 1, 2}, 0)}, {{"group", 2}}) == Floats{0, 1, 20, 30});
  // The second group of offsets moves right by one.
  const Tensor offset = Tensor::From<float>({1, 4, 1, 2}, {0, 0, 0, 0, 0, 0, 1, 1});
  CHECK(Run({x, w, offset}, {{"group", 2}, {"offset_group", 2}}) == Floats{0, 1, 30, 0});
}

TEST_CASE("signals and volumes have their own number of offsets") {
  const Tensor row = Tensor::From<float>({1, 1, 3}, {1, 2, 4});
  CHECK(Run({row, Of({1, 1, 1}, 1), Of({1, 1, 3}, 0.5f)}) == Floats{1.5f, 3, 2});
  CHECK(Run({Counting({1, 1, 2, 2, 2}), Of({1, 1, 1, 1, 1}, 1), Of({1, 3, 1, 1, 1}, 0.5f)},
            {{"strides", {2, 2, 2}}}) == Floats{3.5f});
}

TEST_CASE("shapes are inferred, and wrong ones refused") {
  CHECK(Inferred("DeformConv", {{Sym("N"), 4, 5, 5}, {6, 2, 3, 3}, {Sym("N"), 18, 3, 3}},
                 {{"group", 2}}) == "float32[N, 6, 3, 3]");
  CHECK(Contains(Refused("DeformConv", {{1, 4, 5, 5}, {6, 3, 3, 3}, {1, 18, 3, 3}}, {{"group", 2}}),
                 "C / group channels in W"));
  CHECK(Contains(Refused("DeformConv", {{1, 4, 5, 5}, {6, 4, 3, 3}, {1, 17, 3, 3}}), "18"));
  CHECK(Contains(
      Refused("DeformConv", {{1, 4, 5, 5}, {6, 4, 3, 3}, {1, 18, 3, 3}}, {{"offset_group", 3}}),
      "the groups share evenly"));
  CHECK(Contains(Refused("DeformConv", {{1, 4, 5, 5}, {6, 4, 3, 3}, {1, 18, 3, 3}}, {{"group", 0}}),
                 "groups from 1 on"));
  CHECK(Contains(Refused("DeformConv", {{1, 4, 5, 5}, {6, 4, 3, 3}, {1, 18, 3, 3}},
                         {{"kernel_shape", {2, 3}}}),
                 "the extents of kernel_shape in W"));
  CHECK(Contains(Refused("DeformConv", {{1, 4, 5, 5}, {6, 4, 3}, {1, 18, 3, 3}}), "of one rank"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckOptions options;
  options.compare.gradient = false;  // its steps cross the pixels
  CheckNode(
      OperatorDef("DeformConv", {"x", "w", "o", "b", "m"}, {"y"}, {{"offset_group", 2}}),
      {Counting({1, 2, 3, 3}), Counting({3, 2, 2, 2}), RandomTensor({1, 16, 2, 2}, DType::kFloat32),
       Counting({3}), RandomTensor({1, 8, 2, 2}, DType::kFloat32)},
      options);
}

TEST_CASE("gradients of the image, the weights, the offsets, the bias and the mask") {
  const auto random = [](Shape shape, uint64_t seed) {
    return RandomTensor(shape, DType::kFloat64, seed);
  };
  const std::vector<Tensor> inputs = {random({2, 2, 3, 3}, 1), random({4, 1, 2, 2}, 2),
                                      random({2, 16, 3, 2}, 3), random({4}, 4),
                                      random({2, 8, 3, 2}, 5)};
  const Arguments args = {{"offset_group", 2}, {"group", 2}, {"pads", Ints{1, 0, 0, 0}}};
  const OperatorDef full("DeformConv", {"x", "w", "o", "b", "m"}, {"y"}, args);
  const auto result = CheckGradient(full, inputs, {.inputs = {0, 1, 2, 3, 4}});
  CHECK_MESSAGE(result.ok(), ToString(result));
  const OperatorDef bare("DeformConv", {"x", "w", "o"}, {"y"}, args);
  const auto few = CheckGradient(bare, {inputs[0], inputs[1], inputs[2]}, {.inputs = {0, 1, 2}});
  CHECK_MESSAGE(few.ok(), ToString(few));
}

}  // namespace
}  // namespace deform_conv_test

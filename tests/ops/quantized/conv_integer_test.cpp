// ConvInteger and QLinearConv: windows, pads, groups, zero points, bias.
#include "opkit/ops/quantized/conv_integer.hpp"

#include "ops/data_movement.hpp"

namespace conv_integer_test {
using namespace opkit_tests;

namespace {

using List32 = std::vector<int32_t>;
List32 Convolved(const std::vector<Tensor>& inputs, Arguments args = {}) {
  return Invoke("ConvInteger", inputs, args)[0].ToVector<int32_t>();
}

TEST_CASE("a window's sum, with pads that add nothing") {
  const Tensor x = Tensor::From<uint8_t>({1, 1, 3, 3}, {2, 3, 4, 5, 6, 7, 8, 9, 10});
  const Tensor w = Tensor::From<uint8_t>({1, 1, 2, 2}, {1, 1, 1, 1});
  const Tensor one = Tensor::Scalar<uint8_t>(1);
  CHECK(Convolved({x, w, one}) == List32{12, 16, 24, 28});
  CHECK(Convolved({x, w, one}, {{"pads", Ints{1, 1, 1, 1}}}) ==
        List32{1, 3, 5, 3, 5, 12, 16, 9, 11, 24, 28, 15, 7, 15, 17, 9});
  CHECK(Convolved({x, w, one}, {{"strides", Ints{2, 2}}}) == List32{12});
}

TEST_CASE("groups and channels have their kernels and zero points") {
  const Tensor x = Tensor::From<int8_t>({2, 2, 2}, {1, 2, 3, 4, -128, 6, 7, 127});
  const Tensor w = Tensor::From<int8_t>({2, 1, 1}, {2, -3});
  CHECK(Convolved({x, w}, {{"group", 2}}) == List32{2, 4, -9, -12, -256, 12, -21, -381});
  CHECK(Convolved({x, w, Tensor::Scalar<int8_t>(1), Vector<int8_t>({1, -2})}, {{"group", 2}}) ==
        List32{0, 1, -2, -3, -129, 5, -6, -126});
  const Tensor both = Tensor::From<int8_t>({2, 2, 1}, {1, 1, 0, 1});
  CHECK(Convolved({x, both}) == List32{4, 6, 3, 4, -121, 133, 7, 127});
}

TEST_CASE("QLinearConv adds the bias, scales each channel, rounds and saturates") {
  const Tensor x = Tensor::From<uint8_t>({1, 1, 2}, {3, 5});
  const Tensor w = Tensor::From<int8_t>({3, 1, 1}, {1, 1, -100});
  const Tensor one = Tensor::Scalar(1.f), zero = Tensor::Scalar<uint8_t>(0);
  const Tensor w_zero = Vector<int8_t>({0, 0, 0}), scales = Vector({0.5f, 2, 1});
  const auto run = [&](const Tensor& y_zero, const std::vector<int32_t>& bias) {
    return Invoke("QLinearConv",
                  {x, one, zero, w, scales, w_zero, one, y_zero, Vector<int32_t>(bias)})[0];
  };
  CHECK(run(Tensor::Scalar<int8_t>(0), {0, 0, 0}).ToVector<int8_t>() ==
        std::vector<int8_t>{2, 2, 6, 10, -128, -128});
  CHECK(run(Tensor::Scalar<uint8_t>(10), {1, -10, 399}).ToVector<uint8_t>() ==
        std::vector<uint8_t>{12, 13, 0, 0, 109, 0});
}

TEST_CASE("shapes and types that do not fit are refused") {
  const Known x(DType::kUInt8, {1, 2, 4, 4}), w(DType::kInt8, {3, 2, 3, 3});
  CHECK(Inferred("ConvInteger", {x, w}) == "int32[1, 3, 2, 2]");
  CHECK(Contains(Refused("ConvInteger", {x, {DType::kInt8, {3, 1, 3, 3}}}), "ConvInteger: X is"));
  CHECK(Contains(Refused("ConvInteger", {x, w, {DType::kInt8, {}}}), "int8"));
  CHECK(Contains(Refused("ConvInteger", {x, w, {DType::kUInt8, {}}, {DType::kInt8, {1, 3}}}),
                 "the zero point in input 3 has shape [1, 3], expected one number or a list"));
  const Known number(DType::kFloat32, {}), zero(DType::kUInt8, {});
  CHECK(Contains(
      Refused("QLinearConv",
              {x, number, zero, w, {DType::kFloat32, {1, 3}}, {DType::kInt8, {}}, number, zero}),
      "the scale in input 4 has shape [1, 3]"));
  CHECK(Contains(ErrorOf([] {
                   Convolved({Counting({1, 1, 2}, DType::kInt8), Counting({3, 1, 1}, DType::kInt8),
                              Tensor::Scalar<int8_t>(0), Vector<int8_t>({1, 2})});
                 }).message(),
                 "expected one, or one for each of 3 output channels"));
}

TEST_CASE("the operators keep the promises of their schemas") {
  const Tensor x = Counting({2, 2, 4, 3}, DType::kUInt8), w = Counting({4, 1, 2, 2}, DType::kInt8);
  const Arguments args{{"group", 2}, {"pads", Ints{1, 0, 0, 1}}};
  CheckNode(OperatorDef("ConvInteger", {"x", "w", "z"}, {"y"}, args),
            {x, w, Tensor::Scalar<uint8_t>(3)});
  CheckNode(
      OperatorDef("QLinearConv", {"x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"}, {"y"}, args),
      {x, Tensor::Scalar(0.5f), Tensor::Scalar<uint8_t>(3), w, Vector({1, 2, 0.5f, 0.25f}),
       Vector<int8_t>({1, 2, 3, 4}), Tensor::Scalar(8.f), Tensor::Scalar<int8_t>(1),
       Vector<int32_t>({1, 2, 3, 4})});
}

}  // namespace
}  // namespace conv_integer_test
